/* All unit tests in one program, linked once. Each has a link of its name, and the name that is called says which test runs. */
#include <stdio.h>
#include <string.h>

#define UNIT(name) int name##_main(void);
UNITS
#undef UNIT

static const struct {
    const char *name;
    int (*run)(void);
} units[] = {
#define UNIT(name) {#name, name##_main},
    UNITS
#undef UNIT
};

int main(int count, char **arguments) {
    const char *folder_ends = strrchr(arguments[0], '/');
    const char *name = folder_ends ? folder_ends + 1 : arguments[0];
    for (size_t i = 0; count && i < sizeof units / sizeof *units; i++)
        if (strcmp(units[i].name, name) == 0) return units[i].run();
    fprintf(stderr, "%s: no unit test has this name; call the program by a link that has one\n", name);
    return 2;
}
