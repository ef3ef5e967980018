// SPDX-License-Identifier: GPL-2.0-only OR MIT
/* See lists.rs. */
#include <stdint.h>
#include <stdlib.h>

struct node {
	struct node *next, *prev;
};

struct lists {
	/* Circular; free and not zeroed, free and zeroed, unused, used: as upstream looks through them. */
	struct node head[4];
	struct node chunk[];
};

static void point_to_self(struct node *node)
{
	node->next = node;
	node->prev = node;
}

static void take_off(struct node *node)
{
	node->next->prev = node->prev;
	node->prev->next = node->next;
}

struct lists *lists_new(uint32_t chunks)
{
	struct lists *lists = malloc(sizeof(*lists) + chunks * sizeof(struct node));
	uint32_t i;

	if (!lists)
		return NULL;
	for (i = 0; i < 4; i++)
		point_to_self(&lists->head[i]);
	for (i = 0; i < chunks; i++)
		point_to_self(&lists->chunk[i]);
	return lists;
}

void lists_free(struct lists *lists)
{
	free(lists);
}

void lists_move_tail(struct lists *lists, uint32_t chunk, uint32_t list)
{
	struct node *node = &lists->chunk[chunk], *head = &lists->head[list];

	take_off(node);
	node->prev = head->prev;
	node->next = head;
	head->prev->next = node;
	head->prev = node;
}

void lists_take(struct lists *lists, uint32_t chunk)
{
	take_off(&lists->chunk[chunk]);
	point_to_self(&lists->chunk[chunk]);
}

uint32_t lists_take_first(struct lists *lists)
{
	uint32_t list;

	for (list = 0; list < 4; list++) {
		struct node *node = lists->head[list].next;

		if (node == &lists->head[list])
			continue;
		take_off(node);
		point_to_self(node);
		return node - lists->chunk;
	}
	return UINT32_MAX;
}
