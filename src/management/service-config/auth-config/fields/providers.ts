import { family, flag, secret, text, unsetFlag } from '../field.ts'

const credentials = () => ({ enabled: flag(), client_id: text(), secret: secret() })
const ordinary = () => ({ ...credentials(), email_optional: flag() })

const ORDINARY = [
  'bitbucket',
  'discord',
  'facebook',
  'figma',
  'github',
  'kakao',
  'linkedin_oidc',
  'notion',
  'slack',
  'slack_oidc',
  'spotify',
  'twitch',
  'twitter',
  'x',
  'zoom',
] as const
/** Of which there are many installations. */
const ADDRESSED = ['azure', 'gitlab', 'keycloak'] as const
const PROVIDERS = [...ORDINARY, ...ADDRESSED, 'apple', 'google', 'workos'] as const
type Provider = (typeof PROVIDERS)[number]

/** What signs users in, with the credentials that were given to the project there. */
export const EXTERNAL = {
  ...family('external_', ORDINARY, ordinary),
  ...family('external_', ADDRESSED, () => ({ ...ordinary(), url: text() })),
  ...family('external_', ['workos'], () => ({ ...credentials(), url: text() })),
  ...family('external_', ['apple'], () => ({ ...ordinary(), additional_client_ids: text() })),
  ...family('external_', ['google'], () => ({
    ...ordinary(),
    additional_client_ids: text(),
    skip_nonce_check: unsetFlag,
  })),
  external_anonymous_users_enabled: flag(),
  external_email_enabled: flag(true),
  external_phone_enabled: flag(),
  external_web3_ethereum_enabled: flag(),
  external_web3_solana_enabled: flag(),
}

interface Needs {
  name: Provider
  /** Apps can bring an ID token of these, for which no secret is needed. */
  secret: boolean
  /** There is none that would be meant without one. */
  url: boolean
}
export const PROVIDER_NEEDS: readonly Needs[] = PROVIDERS.map((name) => ({
  name,
  secret: name !== 'apple' && name !== 'google',
  url: name === 'keycloak',
}))
