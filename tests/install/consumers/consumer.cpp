// SPDX-License-Identifier: MIT
#include <switchto/switchto.h>

#include <iostream>

int main()
{
	if (!switchto_backend() || switchto_switch(switchto_self()) != switchto_self())
		return 1;
	std::cout << "C++: " << switchto_backend() << "\n";
}
