//! Trait objects, closures, generics, formatted strings, a panic that is caught where panics unwind.
use std::collections::BTreeMap;

trait Shape {
    fn area(&self, depth: u32) -> f64;
}
struct Square(f64);
struct Group(Vec<Box<dyn Shape>>);
impl Shape for Square {
    fn area(&self, depth: u32) -> f64 {
        if depth == 0 { 0.0 } else { self.area(depth - 1) + self.0 * self.0 }
    }
}
impl Shape for Group {
    fn area(&self, depth: u32) -> f64 {
        self.0.iter().map(|shape| shape.area(depth)).sum()
    }
}

#[inline(never)]
fn fib(n: u32) -> u64 {
    if n < 2 { n.into() } else { fib(n - 1) + fib(n - 2) }
}

#[inline(never)]
fn deep(n: u32, text: &str) -> usize {
    let owned = format!("{text} {n}");
    if n == 0 && cfg!(panic = "unwind") {
        std::panic::resume_unwind(Box::new(owned.len()));
    }
    if n == 0 { owned.len() } else { deep(n - 1, &owned) + owned.len() }
}

fn main() {
    let mut total = 0_u64;
    for round in 0..20_u32 {
        let group = Group((0..8).map(|n| Box::new(Square(f64::from(n + round))) as Box<dyn Shape>).collect());
        total += group.area(5) as u64 + fib(8);
        let mut counts = BTreeMap::new();
        (0..40).for_each(|n| *counts.entry((n * 37 % 23).to_string()).or_insert(0_u32) += n);
        let mut sorted: Vec<_> = counts.into_iter().collect();
        sorted.sort_by_key(|(name, n)| (std::cmp::Reverse(*n), name.clone()));
        total += u64::from(sorted[0].1);
        total += std::panic::catch_unwind(|| deep(3, "deep")).unwrap_or(7) as u64;
    }
    println!("{total}");
}
