/* The set by which links find names that several requests are about. */
#include "check.h"
#include "store/sql/names.h"

#include <stdio.h>

TEST(names_that_were_added_are_there) {
    struct sql_names names = {0};
    char name[16];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "name-%d", i);
        sql_names_add(&names, name);
    }
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "name-%d", i);
        CHECK(sql_names_has(&names, name));
        CHECK(!sql_names_add(&names, name));
    }
}

TEST(of_a_hundred_names_hardly_one_is_mistaken_for_another) {
    struct sql_names names = {0};
    char name[16];
    int mistaken = 0;
    CHECK(!sql_names_has(&names, "name-0"));
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "name-%d", i);
        mistaken += !sql_names_add(&names, name);
    }
    CHECK(mistaken <= 1);
}
