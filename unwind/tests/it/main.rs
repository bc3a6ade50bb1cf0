//! The unwinder from outside: stacks built word by word, sections built byte by byte, and the files of this machine.

mod build;

mod arches;
mod batches;
mod broken;
mod chains;
mod hostile;
mod indexes;
mod programs;
mod roots;
mod rows;
mod rules;
mod truncated;
mod words;
