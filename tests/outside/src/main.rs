//! Prints how the stacks of a statically linked, position-dependent program end: `outside RECORDING PROGRAM` (x86-64).
use fpprof_recording::Recording;
use fpprof_unwind::{Arch, Chunk, Mapping, Module, ModuleId, Regs, Space, Stack, Unwinder};
use std::{collections::BTreeMap, env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let [file, program] = [1, 2].map(|n| env::args().nth(n).expect("usage: outside RECORDING PROGRAM"));
    let modules = vec![Module::from_object(&object::File::parse(&*fs::read(program)?)?)?];
    let code = Mapping { start: 0x40_0000, end: 0x80_0000, executable: true, module: Some(ModuleId(0)), bias: 0 };
    let (space, mut unwinder, mut stack) = (Space::new(0, vec![code]), Unwinder::default(), Stack::default());
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    Recording::open(fs::File::open(file)?)?.samples(|sample| {
        let Some(user) = &sample.user_regs else { return };
        let regs = Regs::new(Arch::X86_64).with_ip(user.ip()).with_sp(user.sp()).with_fp(user.fp());
        let stack_end = sample.stack_end.map(|end| end.address);
        let chunk = Chunk { start: sample.stack_start(), bytes: &sample.stack, stack_end, holes: &[] };
        unwinder.unwind(&modules, &space, &regs, &chunk, &mut stack);
        *ends.entry(stack.stop.to_string()).or_default() += 1;
    })?;
    ends.iter().for_each(|(end, n)| println!("{n} {end}"));
    Ok(())
}
