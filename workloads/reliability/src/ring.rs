//! A ring buffer that is too small for a requested sample.

use crate::found::Found;
use crate::place::Place;
use crate::process::{printed, ran, words};

pub(crate) fn measure(place: &Place) -> anyhow::Result<Found> {
    let dir = place.dir()?;
    let record = |size: &str, file: &str| {
        let mut command = place.fpprof();
        command.args(["record", "-q", "-m", size, "--call-graph", "both,64K", "-o"]).arg(dir.path().join(file));
        command.args(["--", "timeout", "1", "sh", "-c", "while :; do :; done"]);
        command
    };
    let refused = ran(&mut record("8K", "refused"))?;
    let stderr = words(&refused.stderr);
    let needed = stderr.split("pass -m ").nth(1).and_then(|rest| rest.split(' ').next());
    let Some(needed) = needed.filter(|_| refused.status.code() == Some(1)) else {
        return Ok(Found::new(false, format!("{}: {stderr}", refused.status)));
    };
    let file = dir.path().join("recorded");
    let status = ran(&mut record(needed, "recorded"))?.status;
    let report = printed(place.fpprof().args(["report", "--json"]).arg(&file))?;
    let report: serde_json::Value = serde_json::from_slice(&report)?;
    let n = |key: &str| report.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default();
    // `timeout` ends the command, and its exit status is passed on.
    let is_met = status.code() == Some(124) && n("recorded") > 0;
    let figure = format!("refused, {needed} bytes asked for; with these {} samples recorded", n("recorded"));
    Ok(Found::new(is_met, figure))
}
