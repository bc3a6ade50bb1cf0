/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Lua: calls, strings, tables, sorting, patterns, garbage. Argument: repetitions. */
#include "lauxlib.h"
#include "lua.h"
#include "lualib.h"
#include <stdio.h>
#include <stdlib.h>

static const char script[] =
	"local function fib(n) if n < 2 then return n end return fib(n-1) + fib(n-2) end\n"
	"local sum = fib(20)\n"
	"local words = {}\n"
	"for i = 1, 2000 do words[i] = string.format('%05d', (i * 7919) % 10007) end\n"
	"table.sort(words)\n"
	"for word in table.concat(words, ' '):gmatch('%d+') do sum = sum + #word end\n"
	"for i = 1, 4000 do local t = {i, {i}} sum = sum + #t end\n"
	"return sum\n";

int main(int argc, char **argv)
{
	lua_State *state = luaL_newstate();

	if (!state)
		return 1;
	luaL_openlibs(state);
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		if (luaL_dostring(state, script)) {
			fprintf(stderr, "%s\n", lua_tostring(state, -1));
			return 1;
		}
		printf("%lld\n", (long long)lua_tointeger(state, -1));
		lua_pop(state, 1);
	}
	lua_close(state);
	return 0;
}
