//! Query parameters of a URL.

use fpprof_reports::store::{Chosen, Facet, Filter, Unit, Wanted};
use jiff::Timestamp;

/// Parsed query parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Asked {
    /// The filter; in a comparison, that of the right side.
    pub(super) filter: Filter,
    /// The filter of the left side.
    pub(super) before: Filter,
    /// The unit; `None` for the event's default.
    pub(super) unit: Option<Unit>,
    /// The function whose callers and callees are requested.
    pub(super) chosen: Option<Chosen>,
}

/// The parameters that a query accepts besides the filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum More {
    Nothing,
    Unit,
    Functions,
    Sides,
}

/// Parses the parameters of a filter alone, as pairs of names and values.
///
/// # Errors
/// If one is invalid; the message names it and what is expected.
pub(crate) fn filter(pairs: &[(String, String)]) -> Result<Filter, String> {
    parse(pairs, More::Nothing).map(|asked| asked.filter)
}

/// Parses pairs of names and values.
///
/// # Errors
/// If one is invalid; the message names it and what is expected.
pub(super) fn parse(pairs: &[(String, String)], more: More) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let [mut common, mut before, mut after] = [const { Vec::new() }; 3];
    let mut module = None;
    for (name, value) in pairs {
        match (name.as_str(), more) {
            ("unit", More::Unit | More::Functions | More::Sides) => asked.unit = Some(unit(value)?),
            ("function", More::Functions) => asked.chosen = Some(Chosen { name: value.clone(), module: None }),
            ("module", More::Functions) => module = Some(value.clone()),
            (name, More::Sides) if name.starts_with("before.") || name.starts_with("after.") => {
                let (side, own) = name.split_once('.').unwrap_or_default();
                if own == "event" {
                    return Err(format!("{name}: both sides are of one event; use event"));
                }
                if side == "before" { &mut before } else { &mut after }.push((own, value));
            }
            (name, _) => common.push((name, value)),
        }
    }
    if let Some(chosen) = &mut asked.chosen {
        chosen.module = module;
    } else if module.is_some() {
        return Err("module: expected a function beside it".to_owned());
    }
    asked.before = side(&common, &before, more)?;
    asked.filter = side(&common, &after, more)?;
    Ok(asked)
}

/// The filter of a side: its own parameters replace the common ones of the same name.
fn side(common: &[(&str, &String)], own: &[(&str, &String)], more: More) -> Result<Filter, String> {
    let is_replaced = |name: &str| own.iter().any(|(other, _)| *other == name);
    let pairs = common.iter().filter(|(name, _)| !is_replaced(name)).chain(own);
    let mut filter = Filter::default();
    for &(name, value) in pairs {
        let facet = Facet::ALL.into_iter().find(|facet| facet.name() == name);
        if let Some(label) = name.strip_prefix("label.") {
            filter.labels.entry(label.to_owned()).or_default().insert(value.clone());
            continue;
        }
        match (name, facet) {
            ("from", _) => set_time(&mut filter.from_us, name, value)?,
            ("to", _) => set_time(&mut filter.to_us, name, value)?,
            (_, Some(facet)) => {
                let names = filter.names.entry(facet).or_default();
                names.insert(value.clone());
                if names.len() > 1 && matches!(facet, Facet::Event | Facet::Strategy) {
                    return Err(format!("{name}: expected one, as each sample is there once for each"));
                }
            }
            _ => return Err(format!("{name}: no such parameter; expected {}", expected(more))),
        }
    }
    match (filter.from_us, filter.to_us) {
        (Some(from), Some(to)) if from >= to => Err("from: expected a time before the end of the range".to_owned()),
        _ => Ok(filter),
    }
}

fn expected(more: More) -> String {
    let filters = Facet::ALL.map(Facet::name).join(", ");
    let rest = match more {
        More::Nothing => "",
        More::Unit => ", unit",
        More::Functions => ", unit, function, module",
        More::Sides => ", unit, and with before. or after. in front those of one side",
    };
    format!("from, to, {filters}, label.NAME{rest}")
}

fn unit(value: &str) -> Result<Unit, String> {
    match value {
        "samples" => Ok(Unit::Samples),
        "weight" => Ok(Unit::Weight),
        _ => Err("unit: expected samples or weight".to_owned()),
    }
}

/// Sets a time, given as 2026-11-26T14:05:00Z or as seconds since 1970. A second time for the same bound is an error.
fn set_time(time: &mut Option<i64>, name: &str, value: &str) -> Result<(), String> {
    let seconds = value.parse::<f64>().ok().map(|seconds| seconds * 1e6).filter(|us| us.abs() < 1e17);
    // 10¹⁷ µs are some 3,000 years; far below `i64::MAX`.
    #[expect(clippy::cast_possible_truncation, reason = "the range was checked")]
    let us = seconds.map(|us| us.round() as i64);
    let us = us.or_else(|| Some(value.parse::<Timestamp>().ok()?.as_microsecond()));
    let Some(us) = us else {
        return Err(format!("{name}: expected a time such as 2026-11-26T14:05:00Z, or seconds since 1970"));
    };
    if time.replace(us).is_some() {
        return Err(format!("{name}: expected one"));
    }
    Ok(())
}

impl Asked {
    /// The request for [`fpprof_reports::store::Stacks`].
    pub(super) fn wanted(&self, unit: Unit, tree: bool, functions: bool) -> Wanted {
        Wanted { tree, functions, chosen: self.chosen.clone(), unit }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(query: &str, more: More) -> Result<Asked, String> {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        parse(&pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<Vec<_>>(), more)
    }

    /// Check that both formats of times are accepted, that several names of a column are alternatives, and that a
    /// side's own parameters replace the common ones.
    #[test]
    fn parameters_are_filters() {
        let asked = parsed("from=1795694400&to=2026-11-26T12:01:00Z&host=a&host=", More::Nothing).unwrap();
        assert_eq!(asked.filter.from_us, Some(1_795_694_400_000_000));
        assert_eq!(asked.filter.to_us, Some(1_795_694_460_000_000));
        assert!(["a", ""].iter().all(|host| asked.filter.has_name(Facet::Host, host)));
        assert!(!asked.filter.has_name(Facet::Host, "b"));
        let asked = parsed("label.team=web&label.team=&before.label.team=db", More::Sides).unwrap();
        assert_eq!(asked.filter.labels["team"], ["", "web"].map(str::to_owned).into());
        assert_eq!(asked.before.labels["team"], ["db".to_owned()].into());
        let asked = parsed("strategy=cfi&before.strategy=fp&after.host=b&unit=weight", More::Sides).unwrap();
        assert_eq!(asked.before.only(Facet::Strategy), Some("fp"));
        assert_eq!(asked.filter.only(Facet::Strategy), Some("cfi"));
        assert_eq!((asked.before.only(Facet::Host), asked.filter.only(Facet::Host)), (None, Some("b")));
        assert_eq!(asked.unit, Some(Unit::Weight));
    }

    /// Check that errors name the invalid parameter and what is expected.
    #[test]
    fn wrong_parameters_are_named() {
        for (query, more, message) in [
            ("from=yesterday", More::Nothing, "from: expected a time"),
            ("from=1e30", More::Nothing, "from: expected a time"),
            ("from=2&to=1", More::Nothing, "from: expected a time before the end"),
            ("to=1&to=2", More::Nothing, "to: expected one"),
            ("hots=a", More::Unit, "hots: no such parameter; expected from, to, host"),
            ("strategy=fp&strategy=cfi", More::Unit, "strategy: expected one"),
            ("unit=percent", More::Unit, "unit: expected samples or weight"),
            ("unit=weight", More::Nothing, "unit: no such parameter"),
            ("module=libc", More::Functions, "module: expected a function"),
            ("before.event=off-cpu", More::Sides, "before.event: both sides"),
            ("before.hots=a", More::Sides, "hots: no such parameter"),
        ] {
            assert!(parsed(query, more).is_err_and(|error| error.starts_with(message)), "{query}");
        }
    }
}
