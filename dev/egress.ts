import { RESERVED_RANGES } from '../src/platform/net/ip-addresses.ts'

/** Network for requests to the databases and the bucket; the global fetch would pass more isolates. */
export const SERVICES_NETWORK = { network: { allow: ['public', 'private'], tlsOptions: { trustBrowserCas: true } } }

/** The addresses that `isPublicAddress` refuses, and all of IPv6 except 2000::/3. */
const EGRESS_REFUSED = [...RESERVED_RANGES.v4, ...RESERVED_RANGES.v6, '::/3', '4000::/2', '8000::/1']

/**
 * Network for webhooks. Addresses are checked when the connection is made, so a DNS name that changes its address afterwards
 * (DNS rebinding) does not help. The Worker's own requests use another network, because services have private addresses.
 */
export function webhookEgress({ loopback }: { loopback: boolean }) {
  return {
    network: {
      // If both lists match, the longer prefix decides.
      allow: ['public', ...(loopback ? ['127.0.0.1/32', '::1/128'] : [])],
      deny: EGRESS_REFUSED,
      tlsOptions: { trustBrowserCas: true },
    },
  }
}
