/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* QuickJS: calls, JSON, sorting, classes, maps, a regular expression. Argument: repetitions. */
#include "quickjs.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char script[] =
	"(function () {\n"
	"function fib(n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }\n"
	"class Point { constructor(x, y) { this.x = x; this.y = y; } get sum() { return this.x + this.y; } }\n"
	"let total = fib(16), list = [], map = new Map();\n"
	"for (let i = 0; i < 800; i++) { list.push(new Point(i * 7919 % 997, i)); map.set('k' + i % 100, i); }\n"
	"list.sort((a, b) => a.x - b.x);\n"
	"for (const p of JSON.parse(JSON.stringify(list))) total += p.x;\n"
	"for (const p of list) total += p.sum;\n"
	"for (const [k, v] of map) total += v * (k.match(/k(\\d+)/)[1] | 0);\n"
	"return total; })()";

int main(int argc, char **argv)
{
	JSRuntime *runtime = JS_NewRuntime();
	JSContext *context = runtime ? JS_NewContext(runtime) : NULL;

	if (!context)
		return 1;
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		JSValue value = JS_Eval(context, script, strlen(script), "bench.js", JS_EVAL_TYPE_GLOBAL);
		double total;

		if (JS_IsException(value) || JS_ToFloat64(context, &total, value))
			return 1;
		printf("%.0f\n", total);
		JS_FreeValue(context, value);
	}
	JS_FreeContext(context);
	JS_FreeRuntime(runtime);
	return 0;
}
