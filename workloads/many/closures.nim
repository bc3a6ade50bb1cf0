# Closures, iterators, exceptions, sequences.
import std/[algorithm, sequtils, tables]

proc fib(n: int): int = (if n < 2: n else: fib(n - 1) + fib(n - 2))

proc raised(n: int): int =
  if n == 0: raise newException(ValueError, "bottom")
  result = raised(n - 1) + 1

iterator odd(n: int): int =
  for i in 0 ..< n:
    if i mod 2 == 1: yield i

var total = 0
for round in 0 ..< 20:
  let scale = proc (n: int): int = n * round
  total += toSeq(odd(30)).map(scale).foldl(a + b) + fib(9)
  var counts = initTable[string, int]()
  for i in 0 ..< 30: counts.mgetOrPut($(i * 7 mod 13), 0) += i
  total += toSeq(counts.values).sorted(Descending)[0]
  try: discard raised(4)
  except ValueError as error: total += error.msg.len
echo total
