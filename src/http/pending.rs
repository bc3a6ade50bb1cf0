//! Connections whose request has not been accepted yet.

use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::task::AbortHandle;

/// The most of them, of all servers: a client that answers quickly gets through even if all others say nothing.
pub(super) struct Pending {
    max: usize,
    /// In order of arrival, with whom they come from.
    list: Mutex<Vec<(Origin, AbortHandle)>>,
}

/// A client's address; of IPv6 the half that names its network, in which one client can have any address. `None` on a
/// Unix socket.
type Origin = Option<IpAddr>;

impl Pending {
    pub(super) fn new(max: usize) -> Self {
        Self { max, list: Mutex::default() }
    }

    /// Runs a connection. If too many are pending, one is ended: the oldest of whoever has the most, so that a
    /// client that opens many connections, of which none comes to its end, only hinders itself.
    pub(super) fn run(&self, from: Option<IpAddr>, connection: impl Future<Output = ()> + Send + 'static) {
        let mut list = self.list();
        list.retain(|(_, task)| !task.is_finished());
        if list.len() >= self.max {
            let mut counts = HashMap::new();
            list.iter().for_each(|(origin, _)| *counts.entry(*origin).or_insert(0_usize) += 1);
            let most = counts.values().max();
            if let Some(at) = list.iter().position(|(origin, _)| counts.get(origin) == most) {
                list.remove(at).1.abort();
            }
        }
        // The list is locked until the task is in it, so that the task cannot leave before.
        list.push((from.map(network), tokio::spawn(connection).abort_handle()));
    }

    /// The connection of the current task is no longer pending: its request was accepted.
    pub(super) fn accepted(&self) {
        let current = tokio::task::id();
        self.list().retain(|(_, task)| task.id() != current);
    }

    fn list(&self) -> MutexGuard<'_, Vec<(Origin, AbortHandle)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Check that the one who has most connections loses its oldest, and that accepted ones are not counted.
    #[test]
    fn who_has_most_loses() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let pending = Arc::new(Pending::new(4));
            let ended = Arc::new(Mutex::new(Vec::new()));
            let run = |from: &str, name: &'static str, is_accepted: bool| {
                let (ended, its) = (Ends(name, Arc::clone(&ended)), Arc::clone(&pending));
                pending.run(Some(from.parse().expect("an address")), async move {
                    let _ended = ended;
                    if is_accepted {
                        its.accepted();
                    }
                    std::future::pending().await
                });
            };
            run("10.0.0.1", "other", false);
            run("10.0.0.1", "in", true);
            tokio::task::yield_now().await;
            for name in ["first", "second", "third", "fourth"] {
                run("2001:db8::1", name, false);
            }
            run("2001:db8::ffff:1", "fifth", false);
            run("::ffff:10.0.0.2", "new", false);
            tokio::task::yield_now().await;
            assert_eq!(*ended.lock().expect("no panic"), ["first", "second", "third"]);
        });
    }

    /// Notes its name when dropped.
    struct Ends(&'static str, Arc<Mutex<Vec<&'static str>>>);

    impl Drop for Ends {
        fn drop(&mut self) {
            self.1.lock().expect("no panic").push(self.0);
        }
    }
}
