/* foldback doctor. */
#include "server/cli/doctor.h"
#include "server/cli/options.h"
#include "server/libraries/curl.h"
#include "server/libraries/pq.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <microhttpd.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "server/service/service.h"
#include "server/store/backup.h"

/* ---- what was found ----------------------------------------------------------------------------------------------------- */

#define GIBIBYTE ((uint64_t)1 << 30)

extern char **environ;

/* Finds the first line of a file that begins with `start`, and copies the rest of it (malloc). NULL if no line does. */
static char *find_line(const char *path, const char *start) {
    FILE *file = fopen(path, "re");
    char *line = NULL, *found = NULL;
    size_t space = 0, length = strlen(start);
    while (file && !found && getline(&line, &space, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, start, length) == 0) found = strdup(line + length);
    }
    if (file) fclose(file);
    free(line);
    return found;
}

/* ---- versions ----------------------------------------------------------------------------------------------------------- */

static void diagnose_versions(fb_diagnosis *diagnosis) {
    struct utsname kernel;
    char postgres[24], *system = find_line("/etc/os-release", "PRETTY_NAME=\"");
    fb_diagnosis_section(diagnosis, "versions");
    fb_fact_text(diagnosis, "foldback", FB_VERSION);
    fb_fact_text(diagnosis, "libmicrohttpd", MHD_get_version());
    fb_fact_text(diagnosis, "sqlite", sqlite3_libversion());
    fb_fact_text(diagnosis, "curl", fb_curl_load(NULL) ? "missing" : fb_curl.version_info(CURLVERSION_NOW)->version);
    fb_fact_text(diagnosis, "openssl", OpenSSL_version(OPENSSL_VERSION_STRING));
    fb_fact_text(diagnosis, "jansson", jansson_version_str());
    fb_fact_text(diagnosis, "zstd", ZSTD_versionString());
    fb_fact_text(diagnosis, "zlib", zlibVersion());
    bool has_pq = !fb_pq_load(NULL);
    if (has_pq) snprintf(postgres, sizeof postgres, "%d.%d", fb_pq.PQlibVersion() / 10000, fb_pq.PQlibVersion() % 10000);
    fb_fact_text(diagnosis, "libpq", has_pq ? postgres : "missing");
    if (uname(&kernel) == 0) fb_fact_text(diagnosis, "kernel", kernel.release);
    if (uname(&kernel) == 0) fb_fact_text(diagnosis, "machine", kernel.machine);
    if (system) system[strcspn(system, "\"")] = '\0';
    fb_fact_text(diagnosis, "system", system);
    free(system);
}

/* ---- limits ------------------------------------------------------------------------------------------------------------- */

/* UINT64_MAX if the file is missing or says that nothing is limited. */
static uint64_t read_limit(const char *path) {
    char *text = find_line(path, ""), *end = text;
    uint64_t number = text ? strtoull(text, &end, 10) : 0;
    bool is_number = text && end != text && number < (uint64_t)1 << 60; /* version 1 says "none" by a number beyond */
    free(text);
    return is_number ? number : UINT64_MAX;
}

/* The least of the limits of a group and those above it. `group` is cut on the way. */
static uint64_t limit_of_group(const char *root, char *group, const char *file) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        char path[600];
        snprintf(path, sizeof path, "%s%s/%s", root, group, file);
        uint64_t limit = read_limit(path);
        if (limit < least) least = limit;
        char *slash = strrchr(group, '/');
        if (!slash) return least;
        *slash = '\0';
    }
}

/* The memory limit of this process's control groups, of version 2 or 1. */
static uint64_t memory_of_groups(void) {
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[400];
    uint64_t least = UINT64_MAX;
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        char *name = strchr(line, ':'), *group = name ? strchr(name + 1, ':') : NULL;
        if (!group) continue;
        *group++ = '\0';
        uint64_t limit = !name[1] ? limit_of_group("/sys/fs/cgroup", group, "memory.max")
                         : strcmp(name + 1, "memory") == 0
                             ? limit_of_group("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes")
                             : UINT64_MAX;
        if (limit < least) least = limit;
    }
    if (file) fclose(file);
    return least;
}

static uint64_t memory_line(const char *name) {
    char *text = find_line("/proc/meminfo", name);
    uint64_t bytes = text ? strtoull(text, NULL, 10) * 1024 : 0;
    free(text);
    return bytes;
}

static void tell_memory(fb_diagnosis *diagnosis) {
    uint64_t all = memory_line("MemTotal:"), of_groups = memory_of_groups(), least = of_groups < all ? of_groups : all;
    fb_fact_number(diagnosis, "memory_bytes", (int64_t)all);
    fb_fact_number(diagnosis, "memory_available_bytes", (int64_t)memory_line("MemAvailable:"));
    if (of_groups != UINT64_MAX) fb_fact_number(diagnosis, "memory_of_cgroup_bytes", (int64_t)of_groups);
    if (all && least < 2 * GIBIBYTE)
        fb_diagnosis_find(
            diagnosis, FB_WARNING, "little-memory",
            "raise the limit, or lower the options: --workers 8 --max-body 256M --max-body-memory 512M --cache 256M",
            "there are %s of memory; with its usual options a service may need more than 2 GiB", fb_readable_size(least).text);
}

static void diagnose_limits(fb_diagnosis *diagnosis) {
    struct rlimit limit;
    fb_service_config config = fb_service_config_default();
    fb_service_descriptors needed = fb_service_count_descriptors(&config);
    unsigned all = needed.connections + needed.store + needed.others + 4; /* and standard input to standard error, and a log */
    fb_diagnosis_section(diagnosis, "limits");
    fb_fact_number(diagnosis, "processors", sysconf(_SC_NPROCESSORS_ONLN));
    tell_memory(diagnosis);
    fb_fact_number(diagnosis, "descriptors_needed", all);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_max != RLIM_INFINITY) {
        fb_fact_number(diagnosis, "descriptors", (int64_t)limit.rlim_max);
        if (limit.rlim_max < all)
            fb_diagnosis_find(
                diagnosis, FB_FAULT, "few-descriptors",
                "ulimit -n 65536, LimitNOFILE=65536 of systemd, or a smaller --max-connections",
                "%llu file descriptors may be opened here, and a service with its usual options needs %u: it does not start",
                (unsigned long long)limit.rlim_max, all);
    }
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        fb_diagnosis_find(diagnosis, FB_FAULT, "small-files", "ulimit -f unlimited, LimitFSIZE=infinity of systemd",
                          "files may have %llu bytes at most here: the database cannot grow beyond that",
                          (unsigned long long)limit.rlim_cur);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        fb_diagnosis_find(diagnosis, FB_WARNING, "small-address-space", "ulimit -v unlimited, LimitAS=infinity of systemd",
                          "the address space is limited to %llu bytes here: and mapped weights count",
                          (unsigned long long)limit.rlim_cur);
}

/* ---- disk --------------------------------------------------------------------------------------------------------------- */

static const struct file_system {
    unsigned long magic;
    const char *name, *code, *cure, *detail; /* `code` NULL: nothing is wrong with it */
    fb_severity severity;
} file_systems[] = {
#define SHARED(magic, name)                                                                                                    \
    {                                                                                                                          \
        magic, name, "network-disk", "move the data folder to a local disk, or keep the rows in PostgreSQL (docs/scale.md)",   \
            "locks and fsync are not reliable there: the database may be damaged", FB_FAULT                                    \
    }
    {EXT4_SUPER_MAGIC, "ext4", NULL, NULL, NULL, FB_WARNING},
    {XFS_SUPER_MAGIC, "xfs", NULL, NULL, NULL, FB_WARNING},
    {BTRFS_SUPER_MAGIC, "btrfs", NULL, NULL, NULL, FB_WARNING},
    {F2FS_SUPER_MAGIC, "f2fs", NULL, NULL, NULL, FB_WARNING},
    SHARED(NFS_SUPER_MAGIC, "nfs"),
    SHARED(SMB_SUPER_MAGIC, "smb"),
    SHARED(CIFS_SUPER_MAGIC, "cifs"),
    SHARED(SMB2_SUPER_MAGIC, "smb2"),
    SHARED(V9FS_MAGIC, "9p"),
    {TMPFS_MAGIC, "tmpfs", "not-on-disk", "name a folder on a disk with --data",
     "it is memory: the store is gone after a restart", FB_WARNING},
    {OVERLAYFS_SUPER_MAGIC, "overlay", "not-on-a-volume", "mount a volume, and name a folder on it with --data",
     "it is a layer of a container: the store is gone with the container", FB_WARNING},
#undef SHARED
};

static void tell_file_system(fb_diagnosis *diagnosis, const char *place) {
    struct statfs about;
    char number[24];
    if (statfs(place, &about) != 0) return;
    for (const struct file_system *one = file_systems; one < file_systems + sizeof file_systems / sizeof *file_systems; one++) {
        if ((unsigned long)about.f_type != one->magic) continue;
        fb_fact_text(diagnosis, "file_system", one->name);
        if (one->code)
            fb_diagnosis_find(diagnosis, one->severity, one->code, one->cure, "%s is on %s: %s", place, one->name, one->detail);
        return;
    }
    snprintf(number, sizeof number, "0x%lx", (unsigned long)about.f_type);
    fb_fact_text(diagnosis, "file_system", number);
}

static void tell_space(fb_diagnosis *diagnosis, const char *place) {
    struct statvfs about;
    if (statvfs(place, &about) != 0) return;
    uint64_t unit = about.f_frsize ? about.f_frsize : about.f_bsize, all = about.f_blocks * unit, left = about.f_bavail * unit;
    fb_fact_number(diagnosis, "disk_bytes", (int64_t)all);
    fb_fact_number(diagnosis, "free_bytes", (int64_t)left);
    if (about.f_files) fb_fact_number(diagnosis, "free_inodes", (int64_t)about.f_favail);
    if (left < GIBIBYTE || left < all / 20)
        fb_diagnosis_find(diagnosis, FB_WARNING, "disk-low",
                          "make room, or use a larger disk: a backup beside the store needs as much again",
                          "%s are free on the disk of %s", fb_readable_size(left).text, place);
    if (about.f_files && about.f_favail < 1000)
        fb_diagnosis_find(diagnosis, FB_FAULT, "few-inodes", "remove small files, or make a file system with more inodes",
                          "the file system of %s takes %llu more files", place, (unsigned long long)about.f_favail);
}

/* Writes a file that is gone at once: a full disk, a quota, a mount and an owner show only so. */
static int try_to_write(const char *folder) {
    static const char bytes[1 << 16];
    char *name = fb_path_with(folder, "/.doctor-XXXXXX");
    int file = name ? mkostemp(name, O_CLOEXEC) : -1;
    int reason = file < 0 ? errno : 0;
    if (file >= 0) unlink(name);
    free(name);
    if (file < 0) return reason;
    errno = 0;
    bool is_written = write(file, bytes, sizeof bytes) == (ssize_t)sizeof bytes && fsync(file) == 0;
    reason = errno ? errno : ENOSPC;
    close(file);
    return is_written ? 0 : reason;
}

static void check_writing(fb_diagnosis *diagnosis, const char *folder) {
    struct stat about;
    int reason = try_to_write(folder);
    bool is_others = stat(folder, &about) == 0 && geteuid() != 0 && about.st_uid != geteuid();
    fb_fact_text(diagnosis, "writable", reason ? "no" : "yes");
    if (!reason) return;
    if (reason == ENOSPC || reason == EDQUOT)
        fb_diagnosis_find(diagnosis, FB_FAULT, "disk-full",
                          "make room on the disk, or raise the quota; the service goes on by itself then",
                          "nothing can be written to %s: %s", folder, strerror(reason));
    else if (reason == EACCES && is_others)
        fb_diagnosis_find(diagnosis, FB_WARNING, "not-tried", "run foldback doctor as the service's user, or as root",
                          "%s belongs to another user, so whether its service can write there is not known", folder);
    else
        fb_diagnosis_find(diagnosis, FB_FAULT, "store-not-writable", "check the folder's owner, its mode and the mount",
                          "nothing can be written to %s: %s", folder, strerror(reason));
}

/* Where the folder is, or would be made; malloc'ed. */
static char *place_of(const char *folder) {
    struct stat about;
    char *place = fb_path_with(folder, ""), *slash = place ? strrchr(place, '/') : NULL;
    if (!place || stat(folder, &about) == 0) return place;
    if (slash) slash[slash == place] = '\0';
    if (slash) return place;
    free(place);
    return strdup(".");
}

static void diagnose_disk(fb_diagnosis *diagnosis, const char *folder) {
    struct stat about;
    char *place = place_of(folder);
    fb_diagnosis_section(diagnosis, "disk");
    diagnosis->failed |= !place;
    if (place && stat(place, &about) == 0 && S_ISDIR(about.st_mode)) {
        fb_fact_text(diagnosis, "folder", place);
        tell_file_system(diagnosis, place);
        tell_space(diagnosis, place);
        check_writing(diagnosis, place);
    } else if (place) {
        fb_diagnosis_find(diagnosis, FB_FAULT, "store-not-writable", "name a folder whose parent exists with --data",
                          "%s is not a folder", place);
    }
    free(place);
}

/* ---- clock -------------------------------------------------------------------------------------------------------------- */

#define CLOCK_SLACK_MS ((int64_t)5 * 60 * 1000)
#define DAY_MS ((int64_t)86400 * 1000)

static void diagnose_clock(fb_diagnosis *diagnosis, int64_t newest) {
    static const char cure[] =
        "set the clock, and run a time service such as systemd-timesyncd or chrony: tokens expire by it, and "
        "buckets and TLS refuse a wrong one";
    int64_t now = (int64_t)time(NULL) * 1000;
    struct timex kernel = {0};
    struct stat program;
    int state = adjtimex(&kernel);
    fb_diagnosis_section(diagnosis, "clock");
    fb_fact_time(diagnosis, "now", now);
    if (state >= 0) fb_fact_text(diagnosis, "synchronised", state == TIME_ERROR ? "not as far as the kernel knows" : "yes");
    if (newest > now + CLOCK_SLACK_MS)
        fb_diagnosis_find(diagnosis, FB_FAULT, "clock-behind", cure,
                          "the store has something that was made %lld s from now: the clock is behind, or was ahead",
                          (long long)(newest - now) / 1000);
    else if (stat("/proc/self/exe", &program) == 0 && (int64_t)program.st_mtime * 1000 > now + DAY_MS)
        fb_diagnosis_find(diagnosis, FB_FAULT, "clock-behind", cure,
                          "this program is %lld days younger than the clock says that it is",
                          (long long)((int64_t)program.st_mtime - now / 1000) / 86400);
}

/* ---- configuration ------------------------------------------------------------------------------------------------------ */

static bool is_secret(const char *name) {
    static const char *const parts[] = {"TOKEN", "SECRET", "PASSWORD", "KEY"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strstr(name, parts[i])) return true;
    return false;
}

static void tell_variable(fb_diagnosis *diagnosis, const char *variable, size_t length) {
    char *name = strndup(variable, length);
    diagnosis->failed |= !name;
    if (name && is_secret(name)) fb_fact_text(diagnosis, name, "(set, and not shown)");
    else if (name) fb_fact_url(diagnosis, name, variable + length + 1);
    free(name);
}

static void diagnose_configuration(fb_diagnosis *diagnosis) {
    static const char *const ours[] = {"FOLDBACK_", "AWS_", "PG"};
    char *options = find_line("/etc/default/foldback", "FOLDBACK_OPTIONS=");
    fb_diagnosis_section(diagnosis, "configuration");
    for (char **one = environ; *one; one++) {
        size_t length = strcspn(*one, "=");
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
            if (strncmp(*one, ours[i], strlen(ours[i])) == 0 && (*one)[length]) tell_variable(diagnosis, *one, length);
    }
    if (options) fb_fact_url(diagnosis, "/etc/default/foldback", options);
    free(options);
}

/* ---- as text ------------------------------------------------------------------------------------------------------------ */

static void print_value(const char *name, const json_t *value) {
    const char *end = strstr(name, "_bytes");
    if (json_is_string(value)) fb_screen_text(stdout, json_string_value(value));
    else if (end && !end[6]) fputs(fb_readable_size((uint64_t)json_integer_value(value)).text, stdout);
    else printf("%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

/* "log_bytes" is shown as "log". */
static int shown_length(const char *name) {
    const char *end = strstr(name, "_bytes");
    return (int)(end && !end[6] ? end - name : (long)strlen(name));
}

static void print_section(const char *name, json_t *facts) {
    const char *fact;
    json_t *value;
    printf("%c%s\n", toupper((unsigned char)*name), name + 1);
    json_object_foreach(facts, fact, value) {
        char label[64];
        snprintf(label, sizeof label, "%.*s", shown_length(fact), fact);
        for (char *at = label; islower((unsigned char)*label) && *at; at++) /* a variable's name stays as it is */
            if (*at == '_') *at = ' ';
        printf("  %-24s ", label);
        print_value(fact, value);
        putchar('\n');
    }
    putchar('\n');
}

static void print_findings(const json_t *findings) {
    size_t i;
    json_t *one;
    json_array_foreach(findings, i, one) {
        printf("%s: %s: %s\n  ", fb_text_of(one, "severity"), fb_text_of(one, "subject"), fb_text_of(one, "code"));
        fb_screen_text(stdout, fb_text_of(one, "detail"));
        printf("\n  cure: %s\n", fb_text_of(one, "cure"));
    }
    if (!json_array_size(findings)) puts("nothing is wrong");
}

/* ---- the verb ----------------------------------------------------------------------------------------------------------- */

static int print(const fb_cli *cli, const fb_diagnosis *diagnosis) {
    if (diagnosis->failed) return fb_cli_no_memory();
    if (cli->is_json) {
        json_t *answer =
            json_pack("{sb, sO, sO}", "ok", !diagnosis->has_fault, "facts", diagnosis->facts, "findings", diagnosis->findings);
        int result = fb_cli_print_json(answer);
        json_decref(answer);
        return result;
    }
    const char *name;
    json_t *facts;
    json_object_foreach(diagnosis->facts, name, facts) print_section(name, facts);
    print_findings(diagnosis->findings);
    return FB_EXIT_DONE;
}

static void diagnose_here(fb_diagnosis *diagnosis, const fb_cli_values *values) {
    const char *database = values->database ? values->database : fb_variable("FOLDBACK_STORE");
    diagnose_limits(diagnosis);
    diagnose_disk(diagnosis, values->data);
    int64_t newest = fb_diagnose_store(diagnosis, values->data, database);
    diagnose_clock(diagnosis, newest);
    diagnose_configuration(diagnosis);
}

static int diagnose(fb_cli *cli) {
    fb_diagnosis diagnosis = {.facts = json_object(), .findings = json_array()};
    int result = FB_EXIT_DONE;
    if (cli->values.server && cli->values.database)
        return fb_complain(FB_EXIT_USAGE, "--store goes with --data, not with --server");
    diagnose_versions(&diagnosis);
    if (cli->values.server) result = fb_diagnose_service(&diagnosis, cli);
    else diagnose_here(&diagnosis, &cli->values);
    if (!result) result = print(cli, &diagnosis);
    if (!result && diagnosis.has_fault) result = FB_EXIT_FAILED;
    json_decref(diagnosis.facts);
    json_decref(diagnosis.findings);
    return result;
}

/* ---- ready ------------------------------------------------------------------------------------------------------------- */

static int ask_ready(fb_cli *cli) {
    fb_address address = {0};
    json_t *answer;
    if (!cli->values.server) cli->values.server = "http://127.0.0.1:8080";
    fb_address_path(&address, "/readyz");
    int result = fb_cli_get(cli, &address, &answer, NULL);
    if (result) return result;
    if (cli->is_json) result = fb_cli_print_json(answer);
    else puts(fb_text_of(answer, "status"));
    json_decref(answer);
    return result;
}

/* ---- the verbs --------------------------------------------------------------------------------------------------------- */

static const fb_option ready_options[] = {TEXT("server", 0, "URL", "the service (http://127.0.0.1:8080)", server), CA_FILE,
                                          JSON, END};

static const fb_option doctor_options[] = {
    TEXT("store", 0, "postgresql://USER@HOST/DB", "of --data: the database, if the folder does not name it ($FOLDBACK_STORE)",
         database),
    STORE,
    JSON,
    END,
};

const fb_verb fb_doctor_verbs[] = {
    {.name = "ready",
     .arguments = "",
     .summary = "checks whether a service is ready; for health checks",
     .description = "Exit status 0 if it is. The service is --server, $FOLDBACK_SERVER, or http://127.0.0.1:8080.\n",
     .options = ready_options,
     .folder = FB_FOLDER_UNUSED,
     .run = ask_ready},
    {.name = "doctor",
     .arguments = "",
     .summary = "looks for what is wrong with a machine, a store or a service",
     .description =
         "Shows versions, limits, disk, clock, store and configuration, with passwords left out, and says what to do about\n"
         "what is wrong: what to send along when you ask for help. It changes nothing, and works beside a running service;\n"
         "with --server it asks that service, and with an admin's token gets its last failed jobs. Exit status 1 when "
         "something\n"
         "is wrong; warnings alone do not count.\n",
     .options = doctor_options,
     .folder = FB_FOLDER_UNUSED,
     .run = diagnose},
    {0},
};
