/* SPDX-License-Identifier: MIT */
#include "parked.h"

#include <switchto/switchto.h>

#include "die.h"

Parked::Parked(long threads)
	: crowd_(threads, [](const Crowd &, long) {
		  if (switchto_wait(nullptr) < 0)
			  die("switchto_wait");
	  })
{
}
