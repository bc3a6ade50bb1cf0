//! Builds call frame information, stacks and address spaces.

use std::collections::BTreeMap;

use fpprof_unwind::{
    Chunk, Mapping, Memory, Module, ModuleId, ModuleSections, Modules, Options, Regs, Section, Space, Stack,
    TruncatedReason, Unwinder,
};

/// The load bias of modules: AVMA − SVMA.
pub(crate) const BIAS: u64 = 0x5555_0000_0000;
/// Start of stacks, unless a test sets another.
pub(crate) const STACK: u64 = 0x7ffc_0000_1000;
/// SVMA of `.eh_frame`.
pub(crate) const EH_FRAME_SVMA: u64 = 0x10_0000;
/// SVMA of `.eh_frame_hdr`.
pub(crate) const HEADER_SVMA: u64 = 0x20_0000;

pub(crate) const RBX: u8 = 3;
pub(crate) const RBP: u8 = 6;
pub(crate) const RSP: u8 = 7;
pub(crate) const R10: u8 = 10;
pub(crate) const RA: u8 = 16;

/// CFI instructions as bytes.
pub(crate) mod cfa {
    pub(crate) fn def_cfa(register: u8, offset: u8) -> Vec<u8> {
        vec![0x0c, register, offset]
    }
    pub(crate) fn def_cfa_register(register: u8) -> Vec<u8> {
        vec![0x0d, register]
    }
    pub(crate) fn def_cfa_offset(offset: u32) -> Vec<u8> {
        [vec![0x0e], uleb(u64::from(offset))].concat()
    }
    pub(crate) fn def_cfa_expression(bytes: &[u8]) -> Vec<u8> {
        [vec![0x0f], uleb(bytes.len() as u64), bytes.to_vec()].concat()
    }
    /// `offset` in bytes below the CFA, a multiple of 8.
    pub(crate) fn saved(register: u8, below: u8) -> Vec<u8> {
        vec![0x80 | register, below / 8]
    }
    pub(crate) fn saved_above(register: u8, above: u8) -> Vec<u8> {
        vec![0x11, register, (above / 8).wrapping_neg() & 0x7f]
    }
    pub(crate) fn expression(register: u8, bytes: &[u8]) -> Vec<u8> {
        [vec![0x10, register], uleb(bytes.len() as u64), bytes.to_vec()].concat()
    }
    pub(crate) fn val_expression(register: u8, bytes: &[u8]) -> Vec<u8> {
        [vec![0x16, register], uleb(bytes.len() as u64), bytes.to_vec()].concat()
    }
    pub(crate) fn undefined(register: u8) -> Vec<u8> {
        vec![0x07, register]
    }
    pub(crate) fn same_value(register: u8) -> Vec<u8> {
        vec![0x08, register]
    }
    pub(crate) fn in_register(register: u8, other: u8) -> Vec<u8> {
        vec![0x09, register, other]
    }
    pub(crate) fn advance(bytes: u8) -> Vec<u8> {
        assert!(bytes < 0x40);
        vec![0x40 | bytes]
    }
    pub(crate) fn remember() -> Vec<u8> {
        vec![0x0a]
    }
    pub(crate) fn restore_state() -> Vec<u8> {
        vec![0x0b]
    }
    pub(crate) fn uleb(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = (value & 0x7f) as u8;
            value >>= 7;
            if value == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }
}

/// The section to write.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    EhFrame,
    DebugFrame,
}

/// A section under construction. Addresses are absolute, 8 bytes (or 4 for i386).
pub(crate) struct Cfi {
    pub(crate) bytes: Vec<u8>,
    kind: Kind,
    word_bytes: usize,
    cie: usize,
    /// (start, offset) of every FDE.
    pub(crate) entries: Vec<(u64, usize)>,
}

impl Cfi {
    pub(crate) fn new(kind: Kind) -> Self {
        Self { bytes: Vec::new(), kind, word_bytes: 8, cie: 0, entries: Vec::new() }
    }

    /// An x86-64 `.eh_frame` whose FDEs start with the return address on top of the stack.
    pub(crate) fn eh_frame() -> Self {
        let mut cfi = Self::new(Kind::EhFrame);
        cfi.cie("zR", &[cfa::def_cfa(RSP, 8), cfa::saved(RA, 8)].concat());
        cfi
    }

    /// Adds a CIE: code alignment 1, data alignment −8, return address in column 16.
    pub(crate) fn cie(&mut self, augmentation: &str, instructions: &[u8]) -> &mut Self {
        self.cie_of(augmentation, -8, RA, instructions)
    }

    pub(crate) fn cie_of(&mut self, augmentation: &str, data_alignment: i8, ra: u8, instructions: &[u8]) -> &mut Self {
        self.cie = self.bytes.len();
        let mut body = match self.kind {
            Kind::EhFrame => vec![0; 4],
            Kind::DebugFrame => vec![0xff; 4],
        };
        body.push(1);
        body.extend(augmentation.as_bytes());
        body.extend([0, 1, data_alignment as u8 & 0x7f, ra]);
        if augmentation.starts_with('z') {
            // One byte of augmentation data: DW_EH_PE_absptr.
            let has_encoding = augmentation.contains('R');
            body.push(u8::from(has_encoding));
            body.extend([0].iter().take(usize::from(has_encoding)));
        }
        body.extend(instructions);
        self.push(body);
        self
    }

    pub(crate) fn i386(mut self) -> Self {
        self.word_bytes = 4;
        self
    }

    /// Adds an FDE for `start..start + len` that uses the last CIE.
    pub(crate) fn fde(&mut self, start: u64, len: u64, instructions: &[Vec<u8>]) -> &mut Self {
        self.entries.push((start, self.bytes.len()));
        let is_z = self.bytes[self.cie + 9] == b'z';
        let pointer = match self.kind {
            Kind::EhFrame => self.bytes.len() + 4 - self.cie,
            Kind::DebugFrame => self.cie,
        };
        let mut body = (pointer as u32).to_le_bytes().to_vec();
        body.extend(&start.to_le_bytes()[..self.word_bytes]);
        body.extend(&len.to_le_bytes()[..self.word_bytes]);
        if is_z {
            body.push(0);
        }
        body.extend(instructions.concat());
        self.push(body);
        self
    }

    fn push(&mut self, mut body: Vec<u8>) {
        while !body.len().is_multiple_of(8) {
            body.push(0);
        }
        self.bytes.extend((body.len() as u32).to_le_bytes());
        self.bytes.extend(body);
    }

    pub(crate) fn section(&self) -> Section {
        Section { svma: EH_FRAME_SVMA, bytes: self.bytes.clone().into() }
    }

    /// An `.eh_frame_hdr` with these entries.
    pub(crate) fn header(entries: &[(u64, usize)]) -> Section {
        let relative = |svma: u64| (svma.wrapping_sub(HEADER_SVMA) as i32).to_le_bytes();
        let mut bytes = vec![1, 0x1b, 0x03, 0x3b];
        bytes.extend((EH_FRAME_SVMA.wrapping_sub(HEADER_SVMA + 4) as i32).to_le_bytes());
        bytes.extend((entries.len() as u32).to_le_bytes());
        for (start, offset) in entries {
            bytes.extend(relative(*start));
            bytes.extend(relative(EH_FRAME_SVMA + *offset as u64));
        }
        Section { svma: HEADER_SVMA, bytes: bytes.into() }
    }

    /// A module with this section and nothing else.
    pub(crate) fn module(&self) -> Module {
        Module::new(self.sections())
    }

    pub(crate) fn sections(&self) -> ModuleSections {
        let (eh_frame, debug_frame) = match self.kind {
            Kind::EhFrame => (Some(self.section()), None),
            Kind::DebugFrame => (None, Some(self.section())),
        };
        ModuleSections { eh_frame, debug_frame, ..ModuleSections::default() }
    }
}

/// Modules, some of which may be unavailable.
pub(crate) struct Table(pub(crate) Vec<Result<Module, TruncatedReason>>);

impl Modules for Table {
    fn module(&self, id: ModuleId) -> Result<&Module, TruncatedReason> {
        match &self.0[id.0 as usize] {
            Ok(module) => Ok(module),
            Err(reason) => Err(*reason),
        }
    }
}

/// A process with one module at [`BIAS`] (code at SVMA 0x1000 to 0x10000), generated code at [`JIT`] and a stack.
pub(crate) struct Process {
    pub(crate) modules: Table,
    pub(crate) space: Space,
    pub(crate) options: Options,
}

/// Start of the generated code.
pub(crate) const JIT: u64 = 0x7000_0000;

impl Process {
    pub(crate) fn new(module: Module) -> Self {
        Self::of(Ok(module))
    }

    pub(crate) fn of(module: Result<Module, TruncatedReason>) -> Self {
        let mappings = vec![
            Mapping { start: JIT, end: JIT + 0x1000, executable: true, module: None, bias: 0 },
            Mapping {
                start: BIAS + 0x1000,
                end: BIAS + 0x1_0000,
                executable: true,
                module: Some(ModuleId(0)),
                bias: BIAS,
            },
            Mapping {
                start: BIAS + 0x1_0000,
                end: BIAS + 0x2_0000,
                executable: false,
                module: Some(ModuleId(0)),
                bias: BIAS,
            },
        ];
        Self { modules: Table(vec![module]), space: Space::new(1, mappings), options: Options::default() }
    }

    pub(crate) fn unwind(&self, regs: &Regs, memory: &impl Memory) -> Stack {
        let mut stack = Stack::default();
        Unwinder::new(self.options).unwind(&self.modules, &self.space, regs, memory, &mut stack);
        stack
    }
}

/// Registers of x86-64 with ip as an SVMA of the module; all others but sp and fp are 0xdead0000 and their number.
pub(crate) fn regs(ip: u64, sp: u64, fp: u64) -> Regs {
    let mut values = [0; 17];
    for (number, value) in values.iter_mut().enumerate() {
        *value = 0xdead_0000 + number as u64;
    }
    values[usize::from(RSP)] = sp;
    values[usize::from(RBP)] = fp;
    values[16] = BIAS + ip;
    Regs::x86_64(&values)
}

/// The words as bytes, lowest address first.
pub(crate) fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A chunk at [`STACK`] of a stack that ends where the chunk ends.
pub(crate) fn whole(bytes: &[u8]) -> Chunk<'_> {
    Chunk { start: STACK, bytes, stack_end: Some(STACK + bytes.len() as u64), holes: &[] }
}

/// Addresses of the frames; those of the module as SVMAs.
pub(crate) fn addresses(stack: &Stack) -> Vec<u64> {
    stack.frames.iter().map(|frame| frame.address.checked_sub(BIAS).unwrap_or(frame.address)).collect()
}

/// Memory made of single words.
#[derive(Default)]
pub(crate) struct Sparse(pub(crate) BTreeMap<u64, u64>);

impl Memory for Sparse {
    fn read_u64(&self, avma: u64) -> Result<u64, fpprof_unwind::ReadFault> {
        self.0.get(&avma).copied().ok_or(fpprof_unwind::ReadFault::OtherStack)
    }

    fn read(&self, avma: u64, buf: &mut [u8]) -> Result<(), fpprof_unwind::ReadFault> {
        let word = self.read_u64(avma)?.to_le_bytes();
        buf.copy_from_slice(word.get(..buf.len()).ok_or(fpprof_unwind::ReadFault::OtherStack)?);
        Ok(())
    }
}
