//! Assembles ELF files.

/// Address of `.text`.
pub(super) const TEXT: u64 = 0x1000;
/// Address of a section of pointers.
pub(super) const GOT: u64 = 0x6000;
/// Address of `.eh_frame`.
const EH_FRAME: u64 = 0x4000;

/// `SHF_ALLOC`: flags of a loaded section.
const ALLOC: u64 = 2;
/// Flags of a code section.
const CODE: u64 = 6;
/// Flags of a writable section.
const DATA: u64 = 3;

/// The CIE at the start of `.eh_frame`.
///
/// ```text
/// version 1, "zR", code alignment 1, data alignment -8, return address in 16, pcrel|sdata4
/// DW_CFA_def_cfa rsp 8; DW_CFA_offset rip at CFA-8
/// ```
const CIE: [u8; 24] = [20, 0, 0, 0, 0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, 8, 0x90, 1, 0, 0];

pub(super) struct Elf {
    sections: Vec<(String, u64, u64, Vec<u8>)>,
    eh_frame: Vec<u8>,
}

impl Elf {
    pub(super) fn new() -> Self {
        Self { sections: Vec::new(), eh_frame: CIE.to_vec() }
    }

    pub(super) fn section(mut self, name: &str, flags: u64, svma: u64, bytes: &[u8]) -> Self {
        self.sections.push((name.to_owned(), flags, svma, bytes.to_vec()));
        self
    }

    pub(super) fn text(self, bytes: &[u8]) -> Self {
        self.section(".text", CODE, TEXT, bytes)
    }

    pub(super) fn got(self) -> Self {
        self.section(".got", DATA, GOT, &[0; 64])
    }

    /// Adds an FDE for `len` bytes of code with these instructions.
    pub(super) fn function(mut self, start: u64, len: u32, instructions: &[u8]) -> Self {
        let at = self.eh_frame.len();
        let pc_field = EH_FRAME + at as u64 + 8;
        let start = i32::try_from(start.cast_signed() - pc_field.cast_signed()).unwrap();
        let mut body = Vec::new();
        body.extend(u32::try_from(at + 4).unwrap().to_le_bytes());
        body.extend(start.to_le_bytes());
        body.extend(len.to_le_bytes());
        body.push(0);
        body.extend(instructions);
        while (body.len() + 4) % 4 != 0 {
            body.push(0);
        }
        self.eh_frame.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
        self.eh_frame.extend(body);
        self
    }

    /// Returns the file: header, contents, section headers, names last.
    pub(super) fn bytes(mut self) -> Vec<u8> {
        if self.eh_frame.len() > CIE.len() {
            let eh_frame = std::mem::take(&mut self.eh_frame);
            self.sections.push((".eh_frame".to_owned(), ALLOC, EH_FRAME, eh_frame));
        }
        let mut file = vec![0; 64];
        let mut names = vec![0];
        let mut headers = vec![0; 64];
        for (name, flags, svma, bytes) in &self.sections {
            let name_at = names.len();
            names.extend(name.as_bytes());
            names.push(0);
            push_header(&mut headers, name_at, 1, [*flags, *svma, file.len() as u64, bytes.len() as u64]);
            file.extend(bytes);
        }
        let name_at = names.len();
        names.extend(b".shstrtab\0");
        push_header(&mut headers, name_at, 3, [0, 0, file.len() as u64, names.len() as u64]);
        file.extend(&names);
        let n = u16::try_from(self.sections.len() + 2).unwrap();
        let at = file.len() as u64;
        file[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1, 1, 0]);
        // ET_DYN, EM_X86_64.
        file[16..20].copy_from_slice(&[3, 0, 62, 0]);
        file[40..48].copy_from_slice(&at.to_le_bytes());
        file[58..60].copy_from_slice(&64_u16.to_le_bytes());
        file[60..62].copy_from_slice(&n.to_le_bytes());
        file[62..64].copy_from_slice(&(n - 1).to_le_bytes());
        file.extend(headers);
        file
    }
}

fn push_header(headers: &mut Vec<u8>, name_at: usize, kind: u32, fields: [u64; 4]) {
    headers.extend(u32::try_from(name_at).unwrap().to_le_bytes());
    headers.extend(kind.to_le_bytes());
    for field in fields {
        headers.extend(field.to_le_bytes());
    }
    headers.extend([0; 24]);
}
