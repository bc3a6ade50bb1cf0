// Delegates, exceptions, ranges, the collector.
import std.algorithm, std.conv, std.range, std.stdio;

int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

int thrown(int n)
{
    scope (exit) fib(3);
    if (n == 0)
        throw new Exception("bottom");
    return thrown(n - 1) + 1;
}

void main()
{
    long total;
    foreach (round; 0 .. 10)
    {
        total += iota(1, 30).filter!(n => n % 3 != 0).map!(n => n * fib(5)).sum;
        auto words = iota(20).map!(n => to!string(n * 7 % 11)).array.sort.uniq.array;
        total += words.length;
        int delegate(int) twice = (int n) { return n * 2 + cast(int) total % 3; };
        total += twice(round);
        try
            thrown(3);
        catch (Exception e)
            total += e.msg.length;
    }
    writeln(total);
}
