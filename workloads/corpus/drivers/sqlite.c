/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* SQLite in memory: insert, index, join, group, recursion, update. Argument: repetitions. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

static const char script[] =
	"CREATE TABLE a(id INTEGER PRIMARY KEY, k INT, v TEXT);"
	"CREATE TABLE b(k INT, w INT);"
	"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)"
	" INSERT INTO a SELECT i, i * 7919 % 997, printf('%08d', i * 31 % 4001) FROM n;"
	"INSERT INTO b SELECT k, sum(id) FROM a GROUP BY k;"
	"CREATE INDEX a_k ON a(k);"
	"UPDATE a SET v = v || 'x' WHERE k % 3 = 0;"
	"DELETE FROM b WHERE w % 7 = 0;";

int main(int argc, char **argv)
{
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		sqlite3 *db;
		sqlite3_stmt *query;

		if (sqlite3_open(":memory:", &db) || sqlite3_exec(db, script, NULL, NULL, NULL) ||
		    sqlite3_prepare_v2(db, "SELECT count(*), sum(length(v)), max(w) FROM a JOIN b USING(k) WHERE v LIKE '%7%'",
				       -1, &query, NULL)) {
			fprintf(stderr, "%s\n", sqlite3_errmsg(db));
			return 1;
		}
		if (sqlite3_step(query) == SQLITE_ROW)
			printf("%d %d %d\n", sqlite3_column_int(query, 0), sqlite3_column_int(query, 1), sqlite3_column_int(query, 2));
		sqlite3_finalize(query);
		sqlite3_close(db);
	}
	return 0;
}
