#ifndef STORE_TOY_TOY_H
#define STORE_TOY_TOY_H

/* For the driver, which is a module, and for schemes.c, which is built in. */
#define TOY_CAPABILITIES (STORE_CAN_LEASE_EACH | STORE_CAN_FLOOR)

#endif
