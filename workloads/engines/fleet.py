"""What questions to the store of many machines cost: CPU time of DuckDB over copies of the tables that engines.py left.

usage: fleet.py STORE DIRECTORY
"""

import glob
import os
import shutil
import sys

import duckdb

COPIES = [1440, 14400]
QUESTIONS = {
    "broken stacks by service and hour": "SELECT service, process, date_trunc('hour', time) AS hour, "
    "sum(if(stack = 'broken', samples, 0)) / sum(samples) FROM '{}' WHERE strategy = 'fp' GROUP BY ALL",
    "functions that frame pointers lose": "SELECT function, sum(samples) FILTER (strategy <> 'fp') AS all_samples, "
    "sum(samples) FILTER (strategy = 'fp') AS by_fp FROM (SELECT strategy, samples, "
    "unnest(list_distinct(functions)) AS function FROM '{}') GROUP BY ALL "
    "ORDER BY all_samples - coalesce(by_fp, 0) DESC LIMIT 20",
}


def cpu_seconds():
    times = os.times()
    return times.user + times.system


def main():
    store, directory = sys.argv[1:]
    tables = sorted(glob.glob(f"{store}/stacks/*/*.parquet"))
    if not tables:
        sys.exit(f"fleet: {store} has no tables: just engines")
    print("| files | kB each | question | CPU, s | CPU per file, ms |\n|---:|---:|---|---:|---:|")
    for copies in COPIES:
        target = os.path.join(directory, str(copies))
        shutil.rmtree(target, ignore_errors=True)
        os.makedirs(target)
        for number in range(copies):
            shutil.copyfile(tables[number % len(tables)], f"{target}/{number:06}.parquet")
        kb = sum(os.path.getsize(f"{target}/{name}") for name in os.listdir(target)) / copies / 1e3
        for question, sql in QUESTIONS.items():
            connection = duckdb.connect()
            connection.sql("SET TimeZone = 'UTC'")
            begun = cpu_seconds()
            connection.sql(sql.format(f"{target}/*.parquet")).fetchall()
            cpu = cpu_seconds() - begun
            print(f"| {copies} | {kb:.1f} | {question} | {cpu:.1f} | {cpu / copies * 1e3:.2f} |", flush=True)
        shutil.rmtree(target)


main()
