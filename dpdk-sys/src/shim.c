#include "shim.h"

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
