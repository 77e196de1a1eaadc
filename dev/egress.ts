/** Straight to the proxy and the bucket: the global fetch takes a detour here. */
export const SERVICES_NETWORK = { network: { allow: ['public', 'private'], tlsOptions: { trustBrowserCas: true } } }

/** What workerd's own "public" lets through and must not be reached: `isPublicAddress` knows why. */
const EGRESS_REFUSED = [
  '168.63.129.16/32',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
  // All of v6 but 2000::/3.
  '::/3',
  '4000::/2',
  '8000::/1',
  '2001::/23',
  '2001:db8::/32',
  '2002::/16',
  '2620:4f:8000::/48',
  '3fff::/20',
]

/**
 * The way out for webhooks: addresses are judged as the connection is made, so a name that answers otherwise the second
 * time gains nothing. The Worker's other requests go to services on private addresses and pass it by.
 */
export function webhookEgress({ loopback }: { loopback: boolean }) {
  return {
    network: {
      // Where both lists match, the longer prefix decides.
      allow: ['public', ...(loopback ? ['127.0.0.1/32', '::1/128'] : [])],
      deny: EGRESS_REFUSED,
      tlsOptions: { trustBrowserCas: true },
    },
  }
}
