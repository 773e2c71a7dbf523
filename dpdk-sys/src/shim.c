#include "shim.h"

#include <string.h>

int shim_errno(void)
{
	return rte_errno;
}

uint32_t shim_lcore_id(void)
{
	return rte_lcore_id();
}

void shim_pktmbuf_free(struct rte_mbuf *mbuf)
{
	rte_pktmbuf_free(mbuf);
}

int shim_mempool_get_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_mempool_get_bulk(pool, (void **)mbufs, count);
}

void shim_mempool_put_bulk(struct rte_mempool *pool, struct rte_mbuf *const *mbufs, uint32_t count)
{
	rte_mempool_put_bulk(pool, (void *const *)mbufs, count);
}

void shim_ring_drain(struct rte_ring *ring)
{
	void *mbuf;

	while (rte_ring_dequeue(ring, &mbuf) == 0)
		rte_pktmbuf_free(mbuf);
}

/* `struct rte_eth_link` has bit fields, an alignment and, from 24.11 on, a union. */
int shim_link(uint16_t port, uint32_t *speed_mbps, int *up)
{
	struct rte_eth_link link = {0};
	int error = rte_eth_link_get_nowait(port, &link);

	if (error != 0)
		return error;
	*speed_mbps = link.link_speed;
	*up = link.link_status == RTE_ETH_LINK_UP;
	return 0;
}

enum { BATCH_MAX = 32 };

/* Keeps the compiler from leaving out what was read. */
static volatile uint64_t read_sum;

static int pass(uint16_t from, uint16_t to, struct rte_mempool *pool, const uint8_t *pattern,
		uint16_t batch)
{
	struct rte_mbuf *mbufs[BATCH_MAX];
	uint64_t sum = 0, word;
	uint16_t count, i, at;

	if (rte_pktmbuf_alloc_bulk(pool, mbufs, batch) != 0)
		return -1;
	for (i = 0; i < batch; i++) {
		memcpy(rte_pktmbuf_mtod(mbufs[i], void *), pattern, SHIM_TWO_PACKETS_LEN);
		mbufs[i]->data_len = SHIM_TWO_PACKETS_LEN;
		mbufs[i]->pkt_len = SHIM_TWO_PACKETS_LEN;
	}
	if (rte_eth_tx_burst(from, 0, mbufs, batch) != batch)
		return -1;
	count = rte_eth_rx_burst(to, 0, mbufs, BATCH_MAX);
	for (i = 0; i < count; i++) {
		const uint8_t *data = rte_pktmbuf_mtod(mbufs[i], const uint8_t *);

		for (at = 0; at + sizeof(word) <= SHIM_TWO_PACKETS_LEN; at += sizeof(word)) {
			memcpy(&word, data + at, sizeof(word));
			sum += word;
		}
	}
	rte_pktmbuf_free_bulk(mbufs, count);
	read_sum = sum;
	return count == batch ? 0 : -1;
}

int shim_two_packets(uint16_t client, uint16_t server, struct rte_mempool *pool, uint16_t batch,
		     uint32_t rounds)
{
	uint8_t pattern[SHIM_TWO_PACKETS_LEN];
	uint32_t i;

	if (batch == 0 || batch > BATCH_MAX)
		return -1;
	memset(pattern, 0xa5, sizeof(pattern));
	for (i = 0; i < rounds; i++) {
		if (pass(client, server, pool, pattern, batch) != 0 ||
		    pass(server, client, pool, pattern, batch) != 0)
			return -1;
	}
	return 0;
}
