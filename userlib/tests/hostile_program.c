/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * A CUDA program that does what a recorder of it may not expect. It launches a kernel "layer" on memory of its
 * own, STEPS times. $HOW is what it does besides:
 *
 *   elapsed, opened, closed   it allocates, launches "meanwhile", and frees, in the midst of
 *                             cuEventElapsedTime(), or where UVM's tools interface is opened or closed
 *   others-elapsed, ...       another thread does that meanwhile, which is waited for
 *   signal                    a handler calls exit(), in the midst of a line of the record, which frees and unloads
 *   thread                    the program ends by exit() while another thread is in the midst of a line
 *   exec                      it calls exec, and launches once more
 *   refused                   CUDA refuses all launches, or the events before or behind them
 *   released                  the device's context goes, while another thread launches on another device, and has the
 *                             first one's context anew
 *   contexts, green           contexts come and go, or green ones, while kernels run in another
 *   child                     a child of fork only ends
 *   full                      nobody reads what is said, but a thread that launches first
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda.h"

#define MIB ((uint64_t)1 << 20)
/* A line of such a kernel's is as long: a record has to grow soon. */
#define LONG_NAME 4096

/* The moments of the stub (stub/stub.h). */
enum moment { ELAPSED, OPENED, CLOSED, FILE_GROWS, RELEASED };

int cuDevicePrimaryCtxReset_v2(int);
int cuDevicePrimaryCtxRelease_v2(int);
int cuCtxCreate_v2(void **, unsigned int, int);
int cuCtxDestroy_v2(void *);
int cuCtxGetCurrent(void **);
int cuCtxPushCurrent_v2(void *);
int cuCtxPopCurrent_v2(void **);
int cuGreenCtxCreate(void **, void *, int, unsigned int);
int cuCtxFromGreenCtx(void **, void *);
int cuGreenCtxDestroy(void *);
int cuModuleUnload(void *);
unsigned int stub_calls(void);
void stub_meanwhile(enum moment, void (*)(void));
unsigned int stub_events(void);

static struct kernel layer = { "layer" };
static char *memory;
static void *context;
static sem_t begin, done;

static void steps(unsigned long count)
{
	for (unsigned long n = 0; n < count; n++) {
		launch(&layer, NULL, memory, 2 * MIB, 1);
		MUST(cuCtxSynchronize());
	}
}

static void work(void)
{
	static struct kernel kernel = { "meanwhile" };
	char *own = managed(4 * MIB);

	launch(&kernel, NULL, own, 4 * MIB, 1);
	MUST(cuMemFree_v2((uintptr_t)own));
}

static void *other(void *arg)
{
	MUST(cuCtxSetCurrent(context));
	sem_wait(&begin);
	work();
	sem_post(&done);
	return NULL;
}

static void others_work(void)
{
	sem_post(&begin);
	sem_wait(&done);
}

static void asks_for_work(const char *when, int others)
{
	enum moment moment = !strcmp(when, "elapsed") ? ELAPSED :
			     !strcmp(when, "opened") ? OPENED : CLOSED;
	pthread_t thread;

	if (others)
		pthread_create(&thread, NULL, other, NULL);
	stub_meanwhile(moment, others ? others_work : work);
	steps(40);
	if (moment == CLOSED)
		MUST(cuDevicePrimaryCtxReset_v2(0));
	if (others)
		pthread_join(thread, NULL);
}

/* Comes before the recorder's own end, which was registered earlier. */
static void frees(void)
{
	cuMemFree_v2((uintptr_t)memory);
	cuModuleUnload(NULL);
}

static void ends(int number)
{
	exit(7);
}

static void is_signalled(void)
{
	raise(SIGUSR1);
}

static void waits(void)
{
	sem_post(&done);
	for (;;)
		pause();
}

static void *launches(void *arg)
{
	MUST(cuCtxSetCurrent(context));
	steps(1000);
	return NULL;
}

static void ends_in_a_line(int by_signal)
{
	char *name = calloc(1, LONG_NAME + 1);
	pthread_t thread;

	layer.name = memset(name, 'k', LONG_NAME);
	signal(SIGUSR1, ends);
	stub_meanwhile(FILE_GROWS, by_signal ? is_signalled : waits);
	if (by_signal) {
		atexit(frees);
		steps(1000);
	}
	pthread_create(&thread, NULL, launches, NULL);
	sem_wait(&done);
	exit(7);
}

/* Launches that have no time leave no events behind. */
static void are_refused(void)
{
	static const char *const which[] = { "launch", "cuEventRecord", "cuEventCreate" };
	void *params[] = { &memory, &(uint64_t){ MIB }, &(uint64_t){ 1 } };

	for (int n = 0; n < 300; n++) {
		/* The first event of a launch, or the second. */
		stub_fail(which[n % 3], 1 + n % 2 * (n % 3 > 0));
		cuLaunchKernel(&layer, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
		MUST(cuCtxSynchronize());
	}
	printf("%u events\n", stub_events());
}

static void *launches_elsewhere(void *arg)
{
	static struct kernel elsewhere = { "elsewhere" };
	void *own;

	use_device(1);
	own = managed(MIB);
	sem_wait(&begin);
	for (int n = 0; n < 40; n++)
		launch(&elsewhere, NULL, own, MIB, 1);
	MUST(cuCtxSynchronize());
	use_device(0);
	memory = managed(2 * MIB);
	steps(20);
	sem_post(&done);
	return NULL;
}

static void is_released(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, launches_elsewhere, NULL);
	steps(40);
	/* These run until the context goes. */
	for (int n = 0; n < 5; n++)
		launch(&layer, NULL, memory, 2 * MIB, 1);
	stub_meanwhile(RELEASED, others_work);
	MUST(cuDevicePrimaryCtxRelease_v2(0));
	pthread_join(thread, NULL);
	steps(40);
}

static void come_and_go(void)
{
	for (int n = 0; n < 100; n++) {
		void *other;

		launch(&layer, NULL, memory, 2 * MIB, 1);
		MUST(cuCtxCreate_v2(&other, 0, 0));
		MUST(cuCtxDestroy_v2(other));
		steps(1);
	}
	printf("%u events\n", stub_events());
}

/* In each a kernel has run, and one is still to run where another thread asks which have. */
static void green_ones_come_and_go(void)
{
	for (int n = 0; n < 100; n++) {
		void *green, *own;

		MUST(cuGreenCtxCreate(&green, NULL, 0, 1));
		MUST(cuCtxFromGreenCtx(&own, green));
		MUST(cuCtxPushCurrent_v2(own));
		steps(1);
		launch(&layer, NULL, memory, 2 * MIB, 1);
		MUST(cuCtxPopCurrent_v2(&own));
		MUST(cuGreenCtxDestroy(green));
		steps(1);
	}
	printf("%u events\n", stub_events());
}

static pid_t child;
static unsigned int calls;

/* Behind what the recorder does at exit, which was registered later. */
static void child_is_over(void)
{
	if (!child)
		_exit(stub_calls() != calls ? 9 : 0);
}

static void only_ends(void)
{
	int status;

	steps(20);
	calls = stub_calls();
	child = fork();
	if (!child)
		exit(0);
	waitpid(child, &status, 0);
	EXPECT(status == 0);
}

static int reads;

static void *launches_and_reads(void *arg)
{
	char bytes[4096];

	MUST(cuCtxSetCurrent(context));
	sem_wait(&begin);
	/* The other one is in the midst of its launch by now. */
	usleep(300000);
	launch(&layer, NULL, memory, 2 * MIB, 1);
	while (read(reads, bytes, sizeof(bytes)) > 0)
		;
	return NULL;
}

static void nobody_reads(void)
{
	static char bytes[4096];
	int ends[2], flags, before = dup(STDERR_FILENO);
	pthread_t thread;

	if (pipe(ends))
		exit(1);
	reads = ends[0];
	flags = fcntl(ends[1], F_GETFL);
	fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
	while (write(ends[1], bytes, sizeof(bytes)) > 0)
		;
	fcntl(ends[1], F_SETFL, flags);
	dup2(ends[1], STDERR_FILENO);
	close(ends[1]);
	pthread_create(&thread, NULL, launches_and_reads, NULL);
	sem_post(&begin);
	steps(1);
	dup2(before, STDERR_FILENO);
	pthread_join(thread, NULL);
}

int main(int argc, char **argv)
{
	const char *how = getenv("HOW");

	/* Who waits for a lock that nobody gives back waits for ever. */
	alarm(15);
	if (!strcmp(how, "child"))
		atexit(child_is_over);
	child = -1;
	use_device(0);
	MUST(cuCtxGetCurrent(&context));
	memory = managed(2 * MIB);
	if (!strcmp(how, "signal") || !strcmp(how, "thread")) {
		ends_in_a_line(!strcmp(how, "signal"));
	} else if (!strcmp(how, "exec")) {
		steps(20);
		setenv("HOW", "once", 1);
		execv("/proc/self/exe", argv);
		return 1;
	} else if (!strcmp(how, "once")) {
		steps(1);
	} else if (!strcmp(how, "refused")) {
		are_refused();
	} else if (!strcmp(how, "released")) {
		is_released();
	} else if (!strcmp(how, "contexts")) {
		come_and_go();
	} else if (!strcmp(how, "green")) {
		green_ones_come_and_go();
	} else if (!strcmp(how, "child")) {
		only_ends();
	} else if (!strcmp(how, "full")) {
		nobody_reads();
	} else {
		int others = !strncmp(how, "others-", 7);

		asks_for_work(how + (others ? 7 : 0), others);
	}
	return failed;
}
