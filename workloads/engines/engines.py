"""The store of five agents, queried by DuckDB, chDB (ClickHouse's engine), a Spark cluster and `fpprof query`, and what the agents sent to an
OpenTelemetry Collector, to Grafana Pyroscope and into a bucket of MinIO: the same totals from each.

The agents run at the same time, each in a UTS namespace with a host name of its own, and write to one store, as hosts write to
shared storage. Two also send their profiles to the collector, one to Pyroscope, and two into the bucket; the servers are away at
first, and the bucket is missing. Then each engine reads the files as they are, DuckDB and chDB also those in the bucket. Fails if two
engines differ, or if the totals are not what the agents counted. Needs root, java, and the Python packages in requirements.txt.

usage: engines.py FPPROF COLLECTOR PYROSCOPE MINIO DIRECTORY
"""

import glob
import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from functools import partial

# The protocol by which each host's agent sends.
HOSTS = {"web-1": "otlp", "web-2": "otlp", "db-1": "pyroscope", "cache-1": "s3", "cache-2": "s3"}
SECONDS = 30
# The collector and Pyroscope start so long after the agents, and MinIO gets its bucket.
LATE = 8
# How often the agents run again if something waits when they end, and the most seconds of each time.
AGAIN, AGAIN_SECONDS = 5, 20
PORTS = {"otlp": 14318, "pyroscope": 14040, "s3": 14900}
CONSOLE_PORT = 14901
BUCKET, KEY, SECRET = "profiles/fleet", "fpprof", "only-for-this-test"
# For members of a cluster; Pyroscope has one.
GRPC_PORT, MEMBER_PORT = 14095, 14946
PROGRAM = "import json\nwhile True: json.dumps({'key': [1, 2.5, 'text'] * 40})"

# Those that engines write differently as (DuckDB, chDB, Spark, fpprof query). `stacks` and `counters` are views of the two tables.
QUERIES = {
    "totals": "SELECT host, strategy, stack, sum(samples) FROM stacks GROUP BY ALL",
    "broken stacks of frame pointers by service and hour": tuple(
        f"SELECT service, process, {hour}, sum(CASE WHEN stack = 'broken' THEN samples ELSE 0 END), sum(samples) "
        "FROM stacks WHERE strategy = 'fp' GROUP BY ALL"
        for hour in (
            "date_trunc('hour', time)::VARCHAR",
            "toString(toStartOfHour(time))",
            "date_trunc('hour', time)",
            "to_char(date_trunc('hour', time), '%Y-%m-%d %H:%M:%S')",
        )
    ),
    "functions that frame pointers lose": tuple(
        f"SELECT f, sum(CASE WHEN strategy = 'fp' THEN -samples ELSE samples END) AS lost "
        f"FROM (SELECT strategy, samples, {function} AS f FROM stacks) GROUP BY f ORDER BY lost DESC, f LIMIT 50"
        for function in (
            "unnest(list_distinct(functions))",
            "arrayJoin(arrayDistinct(functions))",
            "explode(array_distinct(functions))",
            "unnest(array_distinct(functions))",
        )
    ),
    "balance": "SELECT host, counter, cause, sum(value) FROM counters GROUP BY ALL",
}


def collector(program, directory):
    """Starts the collector; gives it, and the file it writes to."""
    config, profiles = os.path.join(directory, "collector.yaml"), os.path.join(directory, "profiles.json")
    address = f"127.0.0.1:{PORTS['otlp']}"
    with open(config, "w") as file:
        file.write(
            f"receivers: {{otlp: {{protocols: {{http: {{endpoint: '{address}'}}}}}}}}\n"
            f"exporters: {{file: {{path: '{profiles}'}}}}\n"
            "service:\n  telemetry: {metrics: {level: none}}\n"
            "  pipelines: {profiles: {receivers: [otlp], exporters: [file]}}\n"
        )
    log = open(os.path.join(directory, "collector.log"), "w")
    command = [program, "--config", config, "--feature-gates=service.profilesSupport"]
    return subprocess.Popen(command, stdout=log, stderr=log), profiles


def collected(profiles):
    """Rows as the query "totals" has them, of OTLP in JSON: a request in each line."""
    totals, ids = {}, set()
    with open(profiles) as lines:
        for line in lines:
            request = json.loads(line)
            tables = request["dictionary"]
            strings = tables["stringTable"]

            # The collector replaces strings of resources by their places in the table.
            def text(holder, key):
                return holder[key] if key in holder else strings[holder.get(f"{key}Strindex", 0)]

            attributes = [(text(one, "key"), text(one.get("value", {}), "stringValue")) for one in tables["attributeTable"]]
            for resource in request["resourceProfiles"]:
                of_resource = {text(one, "key"): text(one["value"], "stringValue") for one in resource["resource"]["attributes"]}
                for profile in (one for scope in resource["scopeProfiles"] for one in scope["profiles"]):
                    if profile["profileId"] in ids:
                        continue
                    ids.add(profile["profileId"])
                    for sample in profile["samples"]:
                        has = dict(attributes[index] for index in sample["attributeIndices"])
                        key = of_resource["host.name"], has["fpprof.strategy"], has["fpprof.stack"]
                        totals[key] = totals.get(key, 0) + int(sample["values"][0])
    return sorted([*key, samples] for key, samples in totals.items())


def pyroscope(program, directory):
    """Starts Pyroscope."""
    log = open(os.path.join(directory, "pyroscope.log"), "w")
    rings = ["compactor", "distributor", "overrides-exporter", "query-scheduler"]
    addresses = [f"{name}.ring.instance-addr" for name in rings]
    addresses += ["store-gateway.sharding-ring.instance-addr", "query-frontend.instance-addr", "ingester.lifecycler.addr"]
    addresses += ["server.http-listen-address", "server.grpc-listen-address", "memberlist.bind-addr", "memberlist.advertise-addr"]
    options = {
        **{name: "127.0.0.1" for name in addresses},
        "server.http-listen-port": PORTS["pyroscope"],
        "server.grpc-listen-port": GRPC_PORT,
        "memberlist.bind-port": MEMBER_PORT,
        "pyroscopedb.data-path": os.path.join(directory, "pyroscope"),
        "storage.backend": "filesystem",
        "storage.filesystem.dir": os.path.join(directory, "pyroscope-blocks"),
        "self-profiling.disable-push": "true",
        "usage-stats.enabled": "false",
        # A host has some hundred series; the default is for small clusters.
        "ingester.max-global-series-per-tenant": 0,
    }
    return subprocess.Popen([program, *(f"-{name}={value}" for name, value in options.items())], stdout=log, stderr=log)


def shown():
    """Rows as the query "totals" has them, of Pyroscope."""

    def answer(path, body=None):
        request = urllib.request.Request(f"http://127.0.0.1:{PORTS['pyroscope']}{path}", body)
        request.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    names = ["hostname", "strategy", "stack"]
    now = int(time.time())
    question = {"labelNames": names, "start": (now - 3600) * 1000, "end": (now + 60) * 1000}
    rows = []
    for labels in answer("/querier.v1.QuerierService/Series", json.dumps(question).encode())["labelsSet"]:
        row = {label["name"]: label["value"] for label in labels["labels"]}
        selector = ",".join(f'{name}="{row[name]}"' for name in names)
        query = {"query": f"process_cpu:samples:count:cpu:nanoseconds{{{selector}}}", "from": "now-1h", "until": "now+1m"}
        flame_graph = answer(f"/pyroscope/render?{urllib.parse.urlencode(query)}")["flamebearer"]
        rows.append([*(row[name] for name in names), flame_graph["numTicks"]])
    return sorted(rows)


def minio(program, directory):
    """Starts MinIO, without a bucket."""
    log = open(os.path.join(directory, "minio.log"), "w")
    addresses = ["--address", f"127.0.0.1:{PORTS['s3']}", "--console-address", f"127.0.0.1:{CONSOLE_PORT}"]
    own = {"MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET, "MINIO_UPDATE": "off"}
    command = [program, "server", *addresses, os.path.join(directory, "minio")]
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=log, stderr=log)


def make_bucket():
    from pyarrow.fs import S3FileSystem

    server = {"endpoint_override": f"127.0.0.1:{PORTS['s3']}", "scheme": "http"}
    system = S3FileSystem(access_key=KEY, secret_key=SECRET, allow_bucket_creation=True, **server)
    system.create_dir(BUCKET.split("/")[0])


def put():
    """Rows of the bucket, by engine and query."""
    rows = {}
    for name, engine in (("DuckDB", duckdb), ("chDB", chdb)):
        query = engine(f"s3://{BUCKET}")
        for title in ("totals", "balance"):
            rows[name, title] = sorted([plain(value) for value in row] for row in query(QUERIES[title]))
        getattr(query, "end", lambda: None)()
    return rows


def agents(fpprof, otelcol, pyroscope_program, minio_program, directory):
    """Runs the agents beside a program that computes and the servers; gives their store, the collector's file, what Pyroscope shows,
    and what is in the bucket."""
    store, spool = (os.path.join(directory, name) for name in ("store", "store/spool"))
    keys = os.path.join(directory, "credentials")
    with open(keys, "w") as file:
        file.write(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    own = {"otlp": "all-strategies = true", "pyroscope": "all-strategies = true", "s3": f'credentials-file = "{keys}"'}
    for host, protocol in HOSTS.items():
        path = f"/{BUCKET}" if protocol == "s3" else ""
        with open(os.path.join(directory, f"{host}.toml"), "w") as file:
            file.write(
                f'rate = 49\ninterval = "2s"\n[store]\npath = "{store}"\n[http]\nenabled = false\n'
                f'[push]\nurl = "http://127.0.0.1:{PORTS[protocol]}{path}"\nprotocol = "{protocol}"\n{own[protocol]}\n'
                "[limits]\ncpu-percent = 100.0\n"
            )

    def start(host):
        script = 'echo "$1" > /proc/sys/kernel/hostname; exec "$2" agent --config "$3"'
        config, log = (os.path.join(directory, f"{host}.{ending}") for ending in ("toml", "log"))
        command = ["unshare", "--uts", "sh", "-c", script, "sh", host, fpprof, config]
        return subprocess.Popen(command, stderr=open(log, "a"))

    def stop(running):
        for agent in running.values():
            agent.send_signal(signal.SIGTERM)
        failed = [host for host, agent in running.items() if agent.wait() != 0]
        if failed:
            sys.exit(f"engines: agents failed: {failed}")

    busy = subprocess.Popen([sys.executable, "-c", PROGRAM])
    servers = [minio(minio_program, directory)]
    try:
        running = {host: start(host) for host in HOSTS}
        time.sleep(LATE)
        waiting = len(os.listdir(spool))
        receiver, profiles = collector(otelcol, directory)
        servers += [receiver, pyroscope(pyroscope_program, directory)]
        make_bucket()
        print(f"when the servers are there, {waiting} requests wait for them")
        time.sleep(SECONDS - LATE)
        stop(running)
        # An agent that ends sends for a second at most.
        for _ in range(AGAIN):
            if not os.listdir(spool):
                break
            running = {host: start(host) for host in HOSTS}
            until = time.monotonic() + AGAIN_SECONDS
            time.sleep(2)
            while os.listdir(spool) and time.monotonic() < until:
                time.sleep(0.1)
            stop(running)
        if waiting == 0 or os.listdir(spool):
            sys.exit("engines: requests must wait at first, and not at the end")
        for host in (host for host, protocol in HOSTS.items() if protocol == "s3"):
            if "404 Not Found (NoSuchBucket)" not in open(os.path.join(directory, f"{host}.log")).read():
                sys.exit(f"engines: {host} has not said that the bucket is missing")
        # It has written everything when it ends.
        receiver.terminate()
        receiver.wait()
        return store, profiles, shown(), put()
    finally:
        for process in [busy, *servers]:
            process.terminate()
            process.wait()


def duckdb(store):
    import duckdb as engine

    connection = engine.connect()
    connection.sql("SET TimeZone = 'UTC'")
    if store.startswith("s3://"):
        import duckdb_extension_httpfs as extension

        connection.sql(f"LOAD '{glob.glob(f'{os.path.dirname(extension.__file__)}/extensions/*/httpfs.duckdb_extension')[0]}'")
        keys = f"KEY_ID '{KEY}', SECRET '{SECRET}', ENDPOINT '127.0.0.1:{PORTS['s3']}'"
        connection.sql(f"CREATE SECRET (TYPE s3, {keys}, URL_STYLE 'path', USE_SSL false)")
    for table in ("stacks", "counters"):
        connection.sql(f"CREATE VIEW {table} AS FROM '{store}/{table}/*/*.parquet'")
    return lambda sql: connection.sql(sql).fetchall()


def chdb(store):
    from chdb import session

    connection = session.Session()
    for table in ("stacks", "counters"):
        files = f"file('{store}/{table}/*/*.parquet', Parquet)"
        if store.startswith("s3://"):
            url = f"http://127.0.0.1:{PORTS['s3']}/{store.removeprefix('s3://')}"
            files = f"s3('{url}/{table}/*/*.parquet', '{KEY}', '{SECRET}', 'Parquet')"
        connection.query(f"CREATE VIEW {table} AS SELECT * FROM {files}")

    def query(sql):
        return json.loads(connection.query(sql, "JSONCompact").data())["data"]

    query.end = connection.close
    return query


def spark(store):
    import pyspark
    from pyspark.sql import SparkSession

    home = os.path.dirname(pyspark.__file__)
    os.environ.update(SPARK_HOME=home, SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    master = "spark://127.0.0.1:17077"
    start = [os.path.join(home, "bin", "spark-class")]
    work = os.path.join(os.path.dirname(store), "spark")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    arguments = ["--host", "127.0.0.1", "--port", "17077", "--webui-port", "18080"]
    cluster = [subprocess.Popen(start + ["org.apache.spark.deploy.master.Master"] + arguments, **quiet)]
    for n in (1, 2):
        arguments = ["--host", "127.0.0.1", "--port", f"{17077 + n}", "--webui-port", f"{18080 + n}", "--cores", "1"]
        arguments += ["--memory", "1g", "--work-dir", f"{work}{n}", master]
        cluster.append(subprocess.Popen(start + ["org.apache.spark.deploy.worker.Worker"] + arguments, **quiet))
    builder = SparkSession.builder.master(master).config("spark.driver.host", "127.0.0.1")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.sql.session.timeZone", "UTC")
    session = builder.config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    for table in ("stacks", "counters"):
        session.read.parquet(f"{store}/{table}").createOrReplaceTempView(table)

    def query(sql):
        return [tuple(row) for row in session.sql(sql).collect()]

    def end():
        session.stop()
        for process in reversed(cluster):
            process.terminate()
            process.wait()

    query.end = end
    return query


def of_fpprof(fpprof, store):
    def query(sql):
        rows = subprocess.run([fpprof, "query", "--store", store, "--format", "json", sql], check=True, capture_output=True)
        return [json.loads(row).values() for row in rows.stdout.splitlines()]

    return query


def plain(value):
    """Engines differ in how they show a time, and in whether a sum is a number or its text."""
    text = str(value).removesuffix("+00")
    return int(text) if text.lstrip("-").isdigit() else text


def main():
    *programs, directory = map(os.path.abspath, sys.argv[1:])
    os.makedirs(directory, exist_ok=True)
    store, profiles, in_pyroscope, in_bucket = agents(*programs, directory)
    files = glob.glob(f"{store}/*/*/*.parquet")
    size = sum(os.path.getsize(file) for file in files)
    print(f"{len(HOSTS)} agents, {SECONDS} s: {len(files)} files, {size / 1e3:.0f} kB")
    answers = {}
    engines = (("DuckDB", duckdb), ("chDB", chdb), ("Spark", spark), ("fpprof", partial(of_fpprof, programs[0])))
    for number, (name, engine) in enumerate(engines):
        begun = time.monotonic()
        query = engine(store)
        started = time.monotonic() - begun
        for title, sql in QUERIES.items():
            begun = time.monotonic()
            sql = sql if isinstance(sql, str) else sql[number]
            rows = sorted([plain(value) for value in row] for row in query(sql))
            print(f"{name:8} {title:52} {len(rows):4} rows {time.monotonic() - begun:7.2f} s")
            if answers.setdefault(title, rows) != rows:
                differ = [pair for pair in zip(answers[title], rows) if pair[0] != pair[1]]
                sys.exit(f"engines: {name} differs in {title}: {differ[:3]}")
        print(f"{name:8} started in {started:.2f} s")
        getattr(query, "end", lambda: None)()
    for name, protocol, rows in (("the collector", "otlp", collected(profiles)), ("Pyroscope", "pyroscope", in_pyroscope)):
        expected = [row for row in answers["totals"] if HOSTS[row[0]] == protocol]
        if rows != expected:
            sys.exit(f"engines: {name} has {rows} instead of {expected}")
        print(f"{name} has the same totals: {sum(row[-1] for row in rows)} samples of all strategies in {len(rows)} rows")
    for (name, title), rows in in_bucket.items():
        expected = [row for row in answers[title] if HOSTS[row[0]] == "s3"]
        if rows != expected or not rows:
            sys.exit(f"engines: {name} reads {rows} from the bucket instead of {expected}")
        print(f"{name} reads the same {title} from the bucket: {len(rows)} rows")
    check(answers)


def check(answers):
    """The tables must hold what the agents counted."""
    counted = {}
    for host, counter, _, value in answers["balance"]:
        counted[host, counter] = counted.get((host, counter), 0) + value
    for host in HOSTS:
        stored = counted[host, "stored"]
        for strategy in {row[1] for row in answers["totals"]}:
            in_table = sum(row[3] for row in answers["totals"] if row[:2] == [host, strategy])
            if in_table != stored or stored == 0:
                sys.exit(f"engines: {host} stored {stored} samples, {in_table} are in the table under {strategy}")
        parts = sum(counted.get((host, part), 0) for part in ("recorded", "lost", "skipped", "dropped", "unread"))
        if counted[host, "fired"] != parts:
            sys.exit(f"engines: {host}: {counted[host, 'fired']} ticks fired, {parts} are accounted for")
        print(f"{host:8} fired {counted[host, 'fired']} = recorded {counted[host, 'recorded']} + others; stored {stored}")
    print("ok: every engine has the same rows, and the totals of the agents; so have the collector, Pyroscope and the bucket")


if __name__ == "__main__":
    main()
