/* A leaf that keeps its registers in the red zone where it is tuned for K8, below a caller whose frame is found with rbp. */
#include <time.h>

static volatile unsigned long sink;

__attribute__((noinline, noclone)) static unsigned long leaf(unsigned long n)
{
	__asm__ volatile("mov $3, %%ebx\n\t"
			 "mov %0, %%rbp\n\t"
			 ".rept 200\n\t"
			 "imul %%rbx, %%rbp\n\t"
			 "add %%rbp, %0\n\t"
			 ".endr"
			 : "+r"(n)
			 :
			 : "rbx", "rbp", "cc");
	return n;
}

__attribute__((noinline, noclone)) static unsigned long caller(unsigned long n)
{
	volatile char frame[n % 7 + 64];
	unsigned long sum = 0;

	frame[0] = (char)n;
	for (unsigned long i = 0; i < n; i++)
		sum += leaf(sum + (unsigned long)frame[0]);
	return sum;
}

int main(void)
{
	for (clock_t end = clock() + CLOCKS_PER_SEC; clock() < end;)
		sink += caller(100000 + (sink & 3));
	return 0;
}
