//! Generates sources for compilers: large enough to compile for some seconds, the same on every machine.

use std::fmt::Write as _;

/// A C file with the given number of functions with loops, switches and calls.
pub(crate) fn c_source(functions: usize) -> String {
    let mut text = String::from("struct node { struct node *next; int key; double weight; };\n");
    for n in 0..functions {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "int f{n}(struct node *list, int *table, int n) {{
    int sum = {n};
    for (int i = 0; i < n; i++) {{
        switch ((table[i] + {n}) % 7) {{
        case 0: sum += table[i] * {a}; break;
        case 1: sum ^= table[(i * {b}) % n]; break;
        case 2: for (struct node *p = list; p; p = p->next) sum += p->key > sum ? p->key : (int)(p->weight * {n}.5); break;
        case 3: table[i] = sum >> 3; break;
        case 4: if (sum & {b}) {{ table[i] += {a}; sum -= table[n - 1 - i]; }} break;
        default: sum = sum * 31 + i;
        }}
    }}
    return sum{call};
}}",
            a = n * 37 % 101,
            b = n * 53 % 97 + 1,
            call = if n > 0 { format!(" + f{}(list, table, n / 2)", n - 1) } else { String::new() },
        );
    }
    text
}

/// A Rust file with the given number of types with derived and generic code.
pub(crate) fn rust_source(types: usize) -> String {
    let mut text = String::from("use std::collections::BTreeMap;\n");
    for n in 0..types {
        let _ = writeln!(
            text,
            "#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct S{n} {{ pub a: u64, pub b: Option<String>, pub c: Vec<(u32, i{width})>, pub d: [u8; {len}] }}
impl S{n} {{
    pub fn f(&self, m: &BTreeMap<String, Self>) -> Vec<String> {{
        m.iter().filter(|(k, v)| v.a > self.a && k.len() > {len}).map(|(k, v)| format!(\"{{k}}{{:?}}\", v.c)).collect()
    }}
    pub fn g(&mut self, other: &Self) -> u64 {{
        self.c.sort();
        self.c.dedup();
        self.c.extend(other.c.iter().copied().filter(|&(x, _)| u64::from(x) != self.a));
        self.c.iter().map(|&(x, y)| u64::from(x) ^ (y as u64)).fold({n}, |s, x| s.wrapping_mul(31).wrapping_add(x))
    }}
}}",
            width = 8 << (n % 4),
            len = n % 13 + 1,
        );
    }
    text
}

/// A Python program that computes for the number of seconds in its first argument.
pub(crate) const PYTHON: &str = "
import json, re, sys, time
def walk(tree, depth):
    if depth == 0:
        return 1
    return sum(walk(child, depth - 1) for child in tree)
def fold(items):
    return json.loads(json.dumps(sorted(items, key=lambda item: re.sub('[0-9]+', '', str(item)))))
tree = [[[[[] for _ in range(4)] for _ in range(4)] for _ in range(4)] for _ in range(4)]
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    walk(tree, 4)
    fold(list(range(200)))
";
