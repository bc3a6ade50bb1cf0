/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* PCRE2's interpreter: four patterns over text. Argument: repetitions. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "pcre2.h"
#include "text.h"
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 64 << 10 };

static const char *const patterns[] = { "([a-z]+) \\1", "[\\w.]+@[\\w.]+", "(\\d{4})-(\\d\\d)-(\\d\\d)", "(?:un)?w[a-z]*d\\b" };

static long matches(const char *pattern, const char *text)
{
	int error;
	PCRE2_SIZE at;
	pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, 0, &error, &at, NULL);
	pcre2_match_data *data = code ? pcre2_match_data_create_from_pattern(code, NULL) : NULL;
	long n = 0;

	if (!data)
		exit(1);
	for (at = 0; pcre2_match(code, (PCRE2_SPTR)text, SIZE, at, 0, data, NULL) > 0; n++)
		at = pcre2_get_ovector_pointer(data)[1];
	pcre2_match_data_free(data);
	pcre2_code_free(code);
	return n;
}

int main(int argc, char **argv)
{
	char *text = malloc(SIZE);
	long total = 0;

	if (!text)
		return 1;
	fill_text(text, SIZE);
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--)
		for (size_t p = 0; p < sizeof(patterns) / sizeof(*patterns); p++)
			total += matches(patterns[p], text);
	printf("%ld\n", total);
	return 0;
}
