// SPDX-License-Identifier: MIT
#define _GNU_SOURCE
#include "turn.h"
#include "sleep.h"

static void take_out(struct direction *direction, struct turn *turn)
{
	if (turn->before)
		turn->before->next = turn->next;
	else
		atomic_store(&direction->first, turn->next);
	if (turn->next)
		turn->next->before = turn->before;
	else
		direction->last = turn->before;
}

void switchto_turn_end(struct mark *mark, struct direction *direction, struct turn *turn)
{
	pthread_mutex_lock(&mark->lock);
	if (turn && turn->listed) {
		take_out(direction, turn);
		turn->listed = false;
	}
	wake_first(direction);
	pthread_mutex_unlock(&mark->lock);
}

int switchto_turn_wait(struct mark *mark, struct direction *direction, struct turn *turn, bool last,
		       const struct timespec *deadline)
{
	const nsec_t until = switchto_deadline(deadline);
	bool go_on = false;
	uintptr_t word;
	int error;

	if (until < 0)
		return EINVAL;
	pthread_mutex_lock(&mark->lock);
	if (last && turn->listed)
		take_out(direction, turn);
	switchto_waiter_begin(&turn->waiter);
	if (!turn->listed || last) {
		turn->listed = true;
		turn->verified = false;
		turn->error = 0;
		append_turn(direction, turn);
	}
	/* Paired with the look at the list at the end of the call that is in the word. */
	word = atomic_load(&direction->word);
	if (!last && !turn->picky && (is_ready(word) || is_unread(word))) {
		/* Something came after the last look of this call, which had found nothing. */
		go_on = true;
	} else if (!mark_task(word)) {
		go_on = atomic_load(&direction->first) == turn;
		if (last && !go_on)
			wake_first(direction);
	}
	pthread_mutex_unlock(&mark->lock);
	if (go_on)
		return 0;
	error = switchto_waiter_wait(&turn->waiter, until, ON_TURN | CANCELS);
	return turn->error ? turn->error : error;
}
