/* The addresses that may be connected to: the Internet's (IANA's special-purpose registries, RFC 6890), and what the operator
 * allows. The address of the connection is judged, not the spelling or name that led to it. */
#include "server/webhooks/webhooks.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* IPv4 that is not an address of the Internet. */
static const struct {
    uint32_t network;
    unsigned bits;
} special[] = {
    {0x00000000, 8},                                     /* 0.0.0.0/8: this machine */
    {0x0a000000, 8},                                     /* 10/8 */
    {0x64400000, 10},                                    /* 100.64/10: behind carriers' NAT */
    {0x7f000000, 8},                                     /* 127/8 */
    {0xa9fe0000, 16},                                    /* 169.254/16: link-local; the metadata of clouds */
    {0xac100000, 12},                                    /* 172.16/12 */
    {0xc0000000, 24},                                    /* 192.0.0/24: protocol assignments */
    {0xc0000200, 24},                                    /* 192.0.2/24: documentation; so also 198.51.100 and 203.0.113 */
    {0xc0586300, 24},                                    /* 192.88.99/24: relays of 6to4 */
    {0xc0a80000, 16},                                    /* 192.168/16 */
    {0xc6120000, 15},                                    /* 198.18/15: benchmarks */
    {0xc6336400, 24}, {0xcb007100, 24}, {0xe0000000, 4}, /* multicast */
    {0xf0000000, 4},                                     /* reserved, and 255.255.255.255 */
};

static bool is_public_v4(uint32_t address) {
    for (size_t i = 0; i < sizeof special / sizeof *special; i++)
        if ((address ^ special[i].network) >> (32 - special[i].bits) == 0) return false;
    return true;
}

static bool is_within(const struct in6_addr *address, const fb_network *network) {
    unsigned bytes = network->bits / 8, rest = network->bits % 8;
    if (memcmp(address, &network->address, bytes) != 0) return false;
    return !rest || (address->s6_addr[bytes] ^ network->address.s6_addr[bytes]) >> (8 - rest) == 0;
}

/* Of 2000::/3, which is all that IPv6 has given out, without ranges that have another meaning. */
static bool is_public_v6(const struct in6_addr *address) {
    static const fb_network given = {.address = {{{0x20}}}, .bits = 3};
    static const fb_network others[] = {
        {.address = {{{0x20, 0x01}}}, .bits = 23},             /* 2001::/23: Teredo, benchmarks, ORCHID */
        {.address = {{{0x20, 0x01, 0x0d, 0xb8}}}, .bits = 32}, /* documentation */
        {.address = {{{0x20, 0x02}}}, .bits = 16},             /* 6to4: any IPv4 address, private ones too */
        {.address = {{{0x3f, 0xff}}}, .bits = 20},             /* documentation */
    };
    if (!is_within(address, &given)) return false; /* also ::1, ::, fc00::/7, fe80::/10, ff00::/8, 64:ff9b::/96 */
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_within(address, &others[i])) return false;
    return true;
}

static struct in6_addr map(const struct in_addr *address) {
    struct in6_addr mapped = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}}};
    memcpy(mapped.s6_addr + 12, address, 4);
    return mapped;
}

bool fb_network_read(const char *text, fb_network *out) {
    char address[INET6_ADDRSTRLEN];
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : strlen(text);
    struct in_addr v4;
    if (length >= sizeof address) return false;
    memcpy(address, text, length);
    address[length] = '\0';
    bool is_v4 = inet_pton(AF_INET, address, &v4) == 1;
    if (!is_v4 && inet_pton(AF_INET6, address, &out->address) != 1) return false;
    unsigned most = is_v4 ? 32 : 128, bits = most;
    if (slash) {
        size_t digits = strspn(slash + 1, "0123456789");
        if (!digits || digits > 3 || slash[1 + digits]) return false;
        bits = (unsigned)atoi(slash + 1);
    }
    if (bits > most) return false;
    if (is_v4) out->address = map(&v4);
    out->bits = is_v4 ? bits + 96 : bits;
    return true;
}

bool fb_address_may_be_told(const struct sockaddr *address, const fb_network *allowed, size_t count) {
    struct in6_addr whole;
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        whole = map(&v4.sin_addr);
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        whole = v6.sin6_addr;
    } else {
        return false;
    }
    for (size_t i = 0; i < count; i++)
        if (is_within(&whole, &allowed[i])) return true;
    if (!IN6_IS_ADDR_V4MAPPED(&whole)) return is_public_v6(&whole);
    uint32_t v4;
    memcpy(&v4, whole.s6_addr + 12, sizeof v4);
    return is_public_v4(ntohl(v4));
}
