/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* OpenSSL: digests and a cipher, mostly assembly: flags should not matter. Argument: repetitions. */
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 256 << 10 };

int main(int argc, char **argv)
{
	unsigned char *text = calloc(1, SIZE + 64), *out = malloc(SIZE + 64), digest[EVP_MAX_MD_SIZE];
	static const unsigned char key[32] = { 1 }, iv[16] = { 2 };
	unsigned sum = 0, len;

	if (!text || !out)
		return 1;
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--) {
		EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
		int n;

		if (!context || !EVP_EncryptInit_ex(context, EVP_aes_256_ctr(), NULL, key, iv) ||
		    !EVP_EncryptUpdate(context, out, &n, text, SIZE) || !EVP_Digest(out, SIZE, digest, &len, EVP_sha256(), NULL))
			return 1;
		EVP_CIPHER_CTX_free(context);
		sum += digest[0];
	}
	printf("%u\n", sum);
	return 0;
}
