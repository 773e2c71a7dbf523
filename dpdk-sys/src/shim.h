/*
 * What the bindings are made from: DPDK's headers, the functions of shim.c (DPDK has them as
 * static inline ones only), and the constants that a bindings generator cannot see.
 */
#ifndef DPDK_SYS_SHIM_H
#define DPDK_SYS_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

/* Where the fields of a `struct rte_mbuf` are. They move between releases. */
enum {
	SHIM_MBUF_BUF_ADDR = offsetof(struct rte_mbuf, buf_addr),
	SHIM_MBUF_DATA_OFF = offsetof(struct rte_mbuf, data_off),
	SHIM_MBUF_REFCNT = offsetof(struct rte_mbuf, refcnt),
	SHIM_MBUF_NB_SEGS = offsetof(struct rte_mbuf, nb_segs),
	SHIM_MBUF_OL_FLAGS = offsetof(struct rte_mbuf, ol_flags),
	SHIM_MBUF_PKT_LEN = offsetof(struct rte_mbuf, pkt_len),
	SHIM_MBUF_DATA_LEN = offsetof(struct rte_mbuf, data_len),
	SHIM_MBUF_BUF_LEN = offsetof(struct rte_mbuf, buf_len),
	SHIM_MBUF_POOL = offsetof(struct rte_mbuf, pool),
	SHIM_MBUF_NEXT = offsetof(struct rte_mbuf, next),
	SHIM_HEADROOM = RTE_PKTMBUF_HEADROOM,
};

static const uint64_t SHIM_MBUF_INDIRECT = RTE_MBUF_F_INDIRECT;
static const uint64_t SHIM_MBUF_EXTERNAL = RTE_MBUF_F_EXTERNAL;

static const uint64_t SHIM_RX_IP_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK;
static const uint64_t SHIM_RX_IP_BAD = RTE_MBUF_F_RX_IP_CKSUM_BAD;
static const uint64_t SHIM_RX_IP_GOOD = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
static const uint64_t SHIM_RX_IP_NONE = RTE_MBUF_F_RX_IP_CKSUM_NONE;
static const uint64_t SHIM_RX_L4_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK;
static const uint64_t SHIM_RX_L4_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
static const uint64_t SHIM_RX_L4_GOOD = RTE_MBUF_F_RX_L4_CKSUM_GOOD;
static const uint64_t SHIM_RX_L4_NONE = RTE_MBUF_F_RX_L4_CKSUM_NONE;

static const uint64_t SHIM_RX_OFFLOAD_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t SHIM_RX_OFFLOAD_UDP_CKSUM = RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
static const uint64_t SHIM_RX_OFFLOAD_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;

static const uint32_t SHIM_SPEED_UNKNOWN = RTE_ETH_SPEED_NUM_UNKNOWN;
static const uint32_t SHIM_RING_ONE_THREAD = RING_F_SP_ENQ | RING_F_SC_DEQ;
static const uint32_t SHIM_LCORE_ANY = LCORE_ID_ANY;

/* The error of the last call that failed in this thread. */
int shim_errno(void);

/* This thread's place in the mempools' caches, or SHIM_LCORE_ANY. */
uint32_t shim_lcore_id(void);

/* Frees every segment of a packet. */
void shim_pktmbuf_free(struct rte_mbuf *mbuf);

/* All or nothing: 0, or a negative errno. */
int shim_mempool_get_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count);

/* Takes back mbufs as they came: one segment each, not shared, nothing attached. */
void shim_mempool_put_bulk(struct rte_mempool *pool, struct rte_mbuf *const *mbufs, uint32_t count);

/* Frees all packets that wait in a ring. */
void shim_ring_drain(struct rte_ring *ring);

/* Speed in Mb/s, and whether it is up; a negative errno if the port is gone. */
int shim_link(uint16_t port, uint32_t *speed_mbps, int *up);

/* Bytes of the packets that shim_two_packets sends. */
enum { SHIM_TWO_PACKETS_LEN = 154 };

/*
 * Sends `batch` (1 to 32) packets from one port to the other and as many back, `rounds` times, as
 * a C program would: in fresh mbufs, each written whole, read whole and freed. 0, or -1 if the
 * ports are no empty pair, or the pool has too few mbufs.
 */
int shim_two_packets(uint16_t client, uint16_t server, struct rte_mempool *pool, uint16_t batch,
		     uint32_t rounds);

#endif
