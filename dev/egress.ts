import { RESERVED_RANGES } from '../src/platform/net/ip-addresses.ts'

/** Straight to the proxy and the bucket: the global fetch takes a detour here. */
export const SERVICES_NETWORK = { network: { allow: ['public', 'private'], tlsOptions: { trustBrowserCas: true } } }

/** The same addresses that `isPublicAddress` refuses, and all of v6 but 2000::/3. */
const EGRESS_REFUSED = [...RESERVED_RANGES.v4, ...RESERVED_RANGES.v6, '::/3', '4000::/2', '8000::/1']

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
