//! Small models of everything that is printed in tables; every name in them is `name`.

use super::profile::counts;
use fpprof_analysis::audit::{
    Code, CodeTally, FileAudit, FileWeight, Functions, Machine, Producer, Remark, Source, Survey, Weighed, Weights,
};
use fpprof_analysis::callers::{Call, Calls};
use fpprof_analysis::changes::{Change, Changes, Shift, Side};
use fpprof_analysis::flags::{
    Arm, ArmResult, Evaluation, FileSizes, FlagSet, FlagsEnvironment, FlagsMethod, FlagsQuality, Raw, RawProgram,
    StrategyQuality, Times, evaluate,
};
use fpprof_analysis::oracle::{
    Group, JudgedStack, LeafSkips, Mismatch, ShownFrame, StrategyVerdicts, Verdicts, Verification, VerifiedRun,
};
use fpprof_reports::audit::Audited;

/// The model of `report --function`.
pub(crate) fn calls(name: &str) -> Calls {
    let call = |function, amount| Call { function, module: name.to_owned(), amount };
    Calls {
        function: name.to_owned(),
        modules: vec![name.to_owned()],
        unit: "samples".to_owned(),
        all: 10,
        total: 7,
        own: 2,
        callers: vec![call(Some(name.to_owned()), 5), call(None, 2)],
        callees: vec![call(Some(name.to_owned()), 5)],
    }
}

/// The model of `diff` for two recordings.
pub(crate) fn changes(name: &str) -> Changes {
    let shift = |points: f64| Shift {
        before: 100,
        after: 200,
        before_percent: 10.0,
        after_percent: 10.0 + points,
        points,
        interval: None,
    };
    let side = || Side { label: name.to_owned(), strategy: name.to_owned(), samples: 1000, no_stack: 0, complete: 999 };
    let change = Change {
        name: name.to_owned(),
        module: name.to_owned(),
        self_samples: shift(10.0),
        total_samples: shift(20.0),
    };
    Changes { before: side(), after: side(), functions: vec![change], warnings: vec![name.to_owned()] }
}

/// The model of `verify`.
pub(crate) fn verification(name: &str) -> Verification {
    let own = || name.to_owned();
    let some = || counts(&[(name, 1)]);
    let verdicts = || vec![Verdicts { exact: 9, truncated: 1, flagged: 1, wrong: 1 }];
    let group = || Group { name: own(), file: own(), checked: 12, leaf: verdicts(), broke: verdicts() };
    let frame = || ShownFrame { address: 0x1010, cfa: Some(0x7000), name: own() };
    Verification {
        run: VerifiedRun {
            command: vec![own(), own()],
            ended: own(),
            instructions: 100,
            every: 1,
            skipped: 0,
            window: None,
            leap: None,
            seed: None,
            events: some(),
        },
        checked: 12,
        partly_judged: 0,
        excluded: some(),
        strategies: vec![StrategyVerdicts {
            name: own(),
            exact: 9,
            roots_missed: 0,
            truncated: some(),
            flagged: some(),
            wrong: some(),
            leaf_skips: LeafSkips::default(),
        }],
        kernel_walks: None,
        functions: vec![group()],
        files: vec![group()],
        compilers: vec![group()],
        disagreements: vec![Mismatch {
            instruction: 3,
            strategy: own(),
            place: own(),
            culprit: own(),
            culprit_svma: 0x20,
            culprit_file: own(),
            row: own(),
            truth: vec![frame()],
            stacks: vec![JudgedStack { strategy: own(), class: own(), reason: own(), frames: vec![frame()] }],
        }],
        warnings: vec![own()],
    }
}

/// The model of `audit`.
pub(crate) fn survey(name: &str) -> Survey {
    let functions =
        Functions { total: 60, framed: 20, non_leaf: 50, non_leaf_framed: 20, leaf: 10, ..Functions::default() };
    let code = Code { executable: 1000, ok: 600, drops_caller: 200, breaks_chain: 100, ..Code::default() };
    let file = |remarks| FileAudit {
        machine: Machine::X86_64,
        build_id: name.to_owned(),
        tally: CodeTally { functions, code, ..CodeTally::default() },
        source: Source::EhFrame,
        sframe: None,
        go: false,
        compilers: vec![name.to_owned()],
        producers: vec![Producer { compiler: name.to_owned(), flags: vec![name.to_owned()], units: 1 }],
        disassembled: None,
        records: Vec::new(),
        ranges: Vec::new(),
        remarks,
    };
    let mut survey = Survey { looked_at: 2, ..Survey::default() };
    survey.add(format!("a{name}"), Some(name.to_owned()), file(vec![Remark::SectionLeftOut(name.to_owned())]));
    survey.add(format!("b{name}"), None, file(Vec::new()));
    survey.finish();
    survey.refused = counts(&[(name, 3)]);
    survey.unreadable = vec![name.to_owned()];
    survey.n_unreadable = 1;
    let total = Weights { samples: 10, ok: 6, drops_caller: 3, unaudited: 1, ..Weights::default() };
    let weight = FileWeight { path: name.to_owned(), weights: total, reason: Some(name.to_owned()) };
    survey.weighed = Some(Weighed { total, files: vec![weight] });
    survey
}

/// The description of an audit.
pub(crate) fn audited(name: &str) -> Audited {
    Audited { what: name.to_owned(), date: name.to_owned(), distribution: format!("d{name}") }
}

/// The model of `flags`.
pub(crate) fn evaluation(name: &str) -> Evaluation {
    let own = || name.to_owned();
    let of = |complete| StrategyQuality {
        samples: 1000,
        complete,
        reach_main: complete,
        reasons: counts(&[(name, 1000 - complete)]),
        breaking_files: counts(&[(name, 5)]),
        ..StrategyQuality::default()
    };
    let result = |text, complete| ArmResult {
        sizes: FileSizes { text, unwind: 100, sframe: 0, stripped: text + 500 },
        tally: None,
        instructions: Some(text * 10),
        quality: Some(FlagsQuality {
            strategies: [("fp".to_owned(), of(complete)), (format!("x{name}"), of(900))].into(),
            ..FlagsQuality::default()
        }),
    };
    let base = format!("a{name}");
    let arm = |flags: &str, again| Arm { flags: flags.to_owned(), again };
    let fp = format!("b{name}");
    let program = RawProgram {
        name: own(),
        arms: vec![arm(&base, false), arm(&base, true), arm(&fp, false)],
        results: vec![result(1000, 0), result(1000, 0), result(1034, 990)],
        layouts: vec![vec![0, 1, 2]; 3],
        times: (0..10)
            .map(|round| Times {
                round,
                cpu_s: vec![vec![1.0, 1.001, 0.999], vec![1.0, 1.002, 0.998], vec![1.03, 1.031, 1.029]],
            })
            .collect(),
    };
    let flags = |flags: &str| FlagSet {
        name: flags.to_owned(),
        compiler: own(),
        version: own(),
        cflags: own(),
        against: base.clone(),
    };
    evaluate(&Raw {
        environment: FlagsEnvironment {
            cpu: own(),
            kernel: own(),
            distribution: own(),
            binutils: own(),
            date: own(),
            load: own(),
        },
        method: FlagsMethod { seed: 7, rounds: 10, layouts: 3, copies: 1, layout: own(), repeat: own() },
        flag_sets: vec![flags(&base), flags(&fp)],
        programs: vec![program],
        missing: vec![own()],
    })
}
