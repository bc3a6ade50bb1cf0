//! The text of `fpprof unwind`.

use crate::escape::shown;
use crate::terminal::{Paragraph, Style, Tone};
use fpprof_analysis::core_dump::{FrameOut, ThreadOut, UnwoundCore};
use fpprof_analysis::signal_name;
use std::io::{self, Write};

/// Writes every thread: how its stack ends, then its frames, leaf first, each with how it was found.
///
/// # Errors
/// If the writer fails.
pub fn stacks(unwound: &UnwoundCore, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut line = Paragraph::new("", 0);
    line.part(Tone::Dim, shown(&unwound.arch));
    if let Some(command) = &unwound.command {
        line.part(Tone::Strong, shown(command));
    }
    line.write(style, out)?;
    for thread in &unwound.threads {
        stack(thread, style, out)?;
    }
    style.warnings(&unwound.warnings, out)
}

fn stack(thread: &ThreadOut, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let tone = match thread.status.as_str() {
        "complete" => Tone::Good,
        "truncated" => Tone::Warn,
        _ => Tone::Bad,
    };
    let mut line = Paragraph::new("thread", 7);
    line.part(Tone::Strong, thread.tid.to_string());
    if thread.signal != 0 {
        line.part(Tone::Plain, format!("· {}", signal_name(thread.signal.into())));
    }
    line.part(tone, format!("· {} {}", shown(&thread.status), shown(&thread.reason)));
    writeln!(out)?;
    line.write(style, out)?;
    for (number, frame) in thread.frames.iter().enumerate() {
        frame_lines(number, frame, style, out)?;
    }
    Ok(())
}

fn frame_lines(number: usize, frame: &FrameOut, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    // Inlined functions stand above the function they are inlined into, the innermost first.
    for name in frame.inlined.iter().rev() {
        let text = format!("{:<3} {:18} {} (inlined)", "", "", shown(name));
        writeln!(out, "  {}", style.paint(Tone::Dim, &text))?;
    }
    let base = frame.module.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let module = match (base, frame.svma) {
        (Some(base), Some(svma)) => format!("{}+{svma:#x}", shown(base)),
        _ => "no module".to_owned(),
    };
    let name = frame.symbol.as_deref().map_or_else(|| "??".into(), shown);
    let head = format!("#{number:<3} {:#018x} {name}", frame.address);
    let tail = format!("{module} · {}", frame.found.replace('_', " "));
    let doubt =
        if frame.no_call_before { style.paint(Tone::Warn, " · no call before it").to_string() } else { String::new() };
    writeln!(out, "  {} {}{doubt}", head, style.paint(Tone::Dim, &tail))
}
