// Virtual calls, exceptions through several frames with something to destroy in each, lambdas, containers, strings.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area(int depth) const = 0;
};
struct Square : Shape {
    double side;
    explicit Square(double side) : side(side) {}
    double area(int depth) const override { return depth ? area(depth - 1) + side * side : 0; }
};
struct Group : Shape {
    std::vector<std::unique_ptr<Shape>> shapes;
    double area(int depth) const override
    {
        return std::accumulate(shapes.begin(), shapes.end(), 0.0,
                               [&](double sum, const auto &shape) { return sum + shape->area(depth); });
    }
};

struct Noisy {
    long &count;
    ~Noisy() { count++; }
};

[[gnu::noinline]] long deep(int n, long &count)
{
    Noisy noisy{count};
    if (n == 0)
        throw std::runtime_error("bottom");
    return deep(n - 1, count) + n;
}

[[gnu::noinline]] long caught(int n)
{
    long count = 0;
    try {
        deep(n, count);
    } catch (const std::runtime_error &error) {
        count += std::string(error.what()).size();
    }
    return count;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? std::atoi(argv[1]) : 6;
    double total = 0;
    for (int round = 0; round < rounds; round++) {
        Group group;
        for (int i = 0; i < 8; i++)
            group.shapes.push_back(std::make_unique<Square>(i + round));
        total += group.area(5);
        std::map<std::string, int> names;
        for (int i = 0; i < 40; i++)
            names["key" + std::to_string(i * 37 % 23)] += i;
        std::vector<std::pair<int, std::string>> sorted;
        for (const auto &[name, n] : names)
            sorted.emplace_back(n, name);
        std::sort(sorted.begin(), sorted.end(), [](const auto &a, const auto &b) { return a.first > b.first; });
        std::function<long(int)> recursive = [&](int n) -> long { return n < 2 ? n : recursive(n - 1) + recursive(n - 2); };
        total += recursive(8) + sorted.front().first + caught(round % 2 + 2);
    }
    std::cout << total << "\n";
}
