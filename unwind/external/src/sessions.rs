//! One library object per list of modules; the least recently used one is dropped first.

/// The most address spaces kept at a time.
///
/// Samples come in order of time, so few processes alternate; each space holds open files and mappings.
const MAX_SESSIONS: usize = 16;

/// The sessions of a library, by [`crate::Request::modules_id`].
#[derive(Debug)]
pub(crate) struct Sessions<S> {
    current: Option<(u64, Box<S>)>,
    /// The most recently used last.
    others: Vec<(u64, Box<S>)>,
}

impl<S> Sessions<S> {
    /// No sessions.
    pub(crate) const fn new() -> Self {
        Self { current: None, others: Vec::new() }
    }

    /// The session of a module list, created if there is none.
    pub(crate) fn get_or_make<E>(&mut self, id: u64, make: impl FnOnce() -> Result<S, E>) -> Result<&mut S, E> {
        let entry = match self.current.take() {
            Some(entry) if entry.0 == id => entry,
            other => {
                self.others.extend(other);
                match self.others.iter().rposition(|entry| entry.0 == id) {
                    Some(at) => self.others.remove(at),
                    None => {
                        if self.others.len() >= MAX_SESSIONS {
                            self.others.remove(0);
                        }
                        (id, Box::new(make()?))
                    }
                }
            }
        };
        Ok(&mut self.current.insert(entry).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a session in use is created only once, and that the least recently used one is dropped first.
    #[test]
    fn keeps_the_recently_used() {
        let mut sessions = Sessions::new();
        let mut made = Vec::new();
        let mut ask = |id| {
            let session = sessions.get_or_make(id, || {
                made.push(id);
                Ok::<_, ()>(id * 10)
            });
            assert_eq!(session, Ok(&mut (id * 10)));
            made.clone()
        };
        let last = MAX_SESSIONS as u64 - 1;
        for id in (0..=last).chain(0..=last) {
            ask(id);
        }
        assert_eq!(ask(0), (0..=last).collect::<Vec<_>>(), "all of them had room");
        ask(last + 1);
        assert_eq!(ask(0).len() as u64, last + 2, "0 was just used");
        assert_eq!(ask(1).last(), Some(&1), "1 was not");
    }

    /// Check that a failure to make a session is passed on and leaves the others in place.
    #[test]
    fn passes_failures_on() {
        let mut sessions = Sessions::new();
        assert_eq!(sessions.get_or_make(1, || Ok::<_, &str>(1)), Ok(&mut 1));
        assert_eq!(sessions.get_or_make(2, || Err("full")), Err("full"));
        assert_eq!(sessions.get_or_make(1, || Err("made twice")), Ok(&mut 1));
    }
}
