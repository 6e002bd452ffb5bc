/* SPDX-License-Identifier: MIT */
/* Chance that can be had again: by seed, by who rolls, and by the number of the roll. */
#ifndef FUZZ_DICE_H
#define FUZZ_DICE_H

#include <stdint.h>

struct dice {
	uint64_t state;
};

/* splitmix64 */
static inline uint32_t roll_bits(struct dice *dice)
{
	uint64_t z = dice->state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)((z ^ z >> 31) >> 32);
}

static inline uint32_t roll(struct dice *dice, uint32_t sides)
{
	return roll_bits(dice) % sides;
}

static inline struct dice dice_of(uint64_t seed, uint64_t index, uint64_t number)
{
	struct dice dice = { seed };

	dice.state = ((uint64_t)roll_bits(&dice) << 32 | roll_bits(&dice)) + index;
	dice.state = ((uint64_t)roll_bits(&dice) << 32 | roll_bits(&dice)) + number;
	dice.state = (uint64_t)roll_bits(&dice) << 32 | roll_bits(&dice);
	return dice;
}

/* Which of @n, each as probable as it weighs. */
static inline int weighted(struct dice *dice, const uint16_t *weights, int n)
{
	uint32_t sum = 0, at;

	for (int i = 0; i < n; i++)
		sum += weights[i];
	at = roll(dice, sum);
	for (int i = 0; i < n; i++) {
		if (at < weights[i])
			return i;
		at -= weights[i];
	}
	return 0;
}

#endif /* FUZZ_DICE_H */
