-- Laziness, a map, folds, an exception: code whose stack pointer is not the machine's.
module Main (main) where
import Control.Exception
import Data.List (foldl')

fib :: Int -> Integer
fib n = if n < 2 then toInteger n else fib (n - 1) + fib (n - 2)

main :: IO ()
main = do
  let primes = sieve [2 ..] where sieve (p : ns) = p : sieve [n | n <- ns, n `mod` p /= 0]
                                  sieve [] = []
  print (foldl' (+) 0 (take 60 primes) + fromInteger (fib 12))
  caught <- try (evaluate (product [1, 2, 3] `div` (0 :: Int))) :: IO (Either ArithException Int)
  print (either (const 0) id caught)
