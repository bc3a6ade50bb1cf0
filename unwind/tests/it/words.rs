//! Rows as text.

use fpprof_unwind::{CfaRule, RegisterRule, row_at};

use crate::build::{Cfi, Kind, R10, RA, RBP, RBX, RSP, cfa};

/// Check that rows are written as readelf does, with full expressions.
#[test]
fn rows_read_like_readelf() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(
        0x1000,
        0x100,
        &[
            cfa::advance(1),
            cfa::def_cfa_offset(16),
            cfa::saved(RBX, 16),
            cfa::advance(1),
            cfa::def_cfa(RBP, 16),
            cfa::undefined(RSP),
            cfa::same_value(R10),
            cfa::advance(1),
            cfa::def_cfa_expression(&[0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22]),
            cfa::in_register(RSP, R10),
            cfa::expression(RBP, &[0x76, 0x78, 0x94, 4, 0x23, 0x10, 0x28, 2, 0]),
            cfa::val_expression(RBX, &[0x08, 0x20, 0x06]),
            vec![0x14, R10, 1], // DW_CFA_val_offset
            vec![0x2e, 0x30],   // DW_CFA_GNU_args_size
            cfa::advance(1),
            cfa::undefined(RA),
        ],
    );
    cfi.cie("zRS", &cfa::def_cfa(RSP, 8)).fde(0x2000, 1, &[]);
    let module = cfi.module();
    let words = |svma| row_at(&module, svma).unwrap().to_string();
    assert_eq!(words(0x1000), "CFA=rsp+8, ra=c-8");
    assert_eq!(words(0x1001), "CFA=rsp+16, rbx=c-16, ra=c-8");
    assert_eq!(words(0x1002), "CFA=rbp+16, rbx=c-16, rsp=u, r10=s, ra=c-8");
    assert_eq!(
        words(0x1003),
        "CFA=exp(breg7 (rsp) +8; breg16 (rip) +0; lit15; and; lit11; ge; lit3; shl; plus), \
         rbx=vexp(const1u 32; deref), rbp=exp(breg6 (rbp) -8; deref_size 4; plus_uconst 16; bra +2), \
         rsp=r10, r10=v-8, ra=c-8"
    );
    assert!(words(0x1004).ends_with("ra=u"));
    assert_eq!(words(0x2000), "CFA=rsp+8, signal frame");
}

/// Check that a row has its range and that of its FDE.
#[test]
fn rows_know_their_ranges() {
    let mut cfi = Cfi::eh_frame();
    cfi.fde(0x1000, 0x20, &[cfa::advance(8), cfa::def_cfa_offset(16), vec![0x2e, 0x30], cfa::advance(8)]);
    let module = cfi.module();
    let row = row_at(&module, 0x1009).unwrap();
    assert_eq!((row.range.clone(), row.entry_range.clone()), (0x1008..0x1010, 0x1000..0x1020));
    assert_eq!((row.args_size, row.return_address_register, row.is_signal_frame), (0x30, 16, false));
    assert_eq!(row.cfa, CfaRule::RegisterOffset { register: 7, offset: 16 });
    assert_eq!((row.register(16), row.register(3)), (RegisterRule::Offset(-8), RegisterRule::Unspecified));
    assert_eq!(row_at(&module, 0x1010).unwrap().range, 0x1010..0x1020);
}

/// Check that the signal frame mark `S`, which stands alone in `.debug_frame`, is read.
#[test]
fn reads_a_bare_signal_frame_mark() {
    let mut cfi = Cfi::new(Kind::DebugFrame);
    cfi.cie("S", &cfa::def_cfa(RSP, 8));
    cfi.fde(0x1000, 0x20, &[]);
    assert!(row_at(&cfi.module(), 0x1000).unwrap().is_signal_frame);
}
