import { family, flag, secret, text, unsetFlag } from '../field.ts'

const credentials = () => ({ enabled: flag(), client_id: text(), secret: secret() })
const standardFields = () => ({ ...credentials(), email_optional: flag() })

const STANDARD = [
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
/** Providers with many installations, which need a URL. */
const WITH_URL = ['azure', 'gitlab', 'keycloak'] as const
const PROVIDERS = [...STANDARD, ...WITH_URL, 'apple', 'google', 'workos'] as const
type Provider = (typeof PROVIDERS)[number]

/** External sign-in methods with the project's credentials. */
export const EXTERNAL = {
  ...family('external_', STANDARD, standardFields),
  ...family('external_', WITH_URL, () => ({ ...standardFields(), url: text() })),
  ...family('external_', ['workos'], () => ({ ...credentials(), url: text() })),
  ...family('external_', ['apple'], () => ({ ...standardFields(), additional_client_ids: text() })),
  ...family('external_', ['google'], () => ({
    ...standardFields(),
    additional_client_ids: text(),
    skip_nonce_check: unsetFlag,
  })),
  external_anonymous_users_enabled: flag(),
  external_email_enabled: flag(true),
  external_phone_enabled: flag(),
  external_web3_ethereum_enabled: flag(),
  external_web3_solana_enabled: flag(),
}

interface Requirement {
  name: Provider
  /** False for providers whose ID tokens an app can send, which requires no secret. */
  secret: boolean
  /** True if the provider has no default URL. */
  url: boolean
}
export const PROVIDER_NEEDS: readonly Requirement[] = PROVIDERS.map((name) => ({
  name,
  secret: name !== 'apple' && name !== 'google',
  url: name === 'keycloak',
}))
