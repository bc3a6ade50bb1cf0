//! The unwinder: registers, a memory reader and section bytes in; frames, each with its origin, and one stop reason out.
//!
//! You provide the registers of a sample, something that reads its memory ([`Memory`]), and the mappings of its
//! address space ([`Space`]) with the unwind sections of the modules mapped there ([`Module`]).
//! In turn you get a [`Stack`]: its frames, leaf first, each saying how it was found, and exactly one [`StopReason`].
//! No files, no clock, no threads, no logging; not for symbol names.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod stack;

pub use stack::{BrokenReason, Frame, FrameFlags, FrameSource, Root, Stack, StopReason, TruncatedReason};
