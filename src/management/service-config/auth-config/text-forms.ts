import * as z from 'zod'
import { Text } from '../../../platform/http/common-values.ts'
import { LIST_LENGTH_MAX, Short } from './field.ts'

const LOCAL_HOSTS = ['localhost', '127.0.0.1', '[::1]', 'host.docker.internal']
const POSTGRES_NAME = /^[a-zA-Z_][a-zA-Z0-9_]{0,62}$/

const webUrl = (text: string): URL | undefined => {
  const url = URL.canParse(text) ? new URL(text) : undefined
  return url && ['http:', 'https:'].includes(url.protocol) ? url : undefined
}

/** An address with or without a scheme. */
export const Address = Short.regex(/^[^,]+$/, 'must be a single address without a comma')

/** A comma-separated list. */
export const List = Text.max(LIST_LENGTH_MAX, { abort: true })

const isOrigin = (entry: string): boolean =>
  webUrl(entry)?.origin === entry.toLowerCase() || /^android:apk-key-hash:[\w-]+$/.test(entry)

/** A comma-separated list of origins. Auth trims entries and ignores empty ones. */
export const OriginList = List.refine((text) => {
  const entries = text.split(',').map((entry) => entry.trim())
  return entries.every((entry) => entry === '' || isOrigin(entry))
}, 'must be comma-separated origins such as https://example.com')

const HOST_NAME = /^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)*[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/i
export const HostName = Text.max(253).refine((text) => text === '' || HOST_NAME.test(text), 'must be a host name')

export const Port = Text.regex(/^[1-9][0-9]{0,4}$/, 'must be a port').refine(
  (text) => Number(text) <= 65_535,
  'must be at most 65535',
)

/** Comma-separated names. Only one part of the pattern can match a space, so that a mismatch takes linear time. */
export const Tags = Short.regex(/^\s*(?:[a-zA-Z0-9_-]+\s*,+\s*)*(?:[a-zA-Z0-9_-]+\s*)?$/)

/** Comma-separated `<phone>=<code>` pairs. */
export const TestCodes = List.regex(/^(?:[0-9]{1,15}=[0-9]+(?:,|$))*$/)

/** Whether a text is the URI of a hook: a function in Postgres, or a URL. URLs must use TLS unless the host is local. */
function isHookUri(text: string): boolean {
  if (text === '') return true
  const [, path] = /^pg-functions:\/\/(.*)$/.exec(text) ?? []
  if (path !== undefined) {
    const names = path.split('/')
    return names.length === 3 && names.every((name) => POSTGRES_NAME.test(name))
  }
  const url = webUrl(text)
  return url !== undefined && (url.protocol === 'https:' || LOCAL_HOSTS.includes(url.hostname))
}
export const HookUri = Short.refine(
  isHookUri,
  'must be an https URL, an http URL of a local host, or pg-functions://<database>/<schema>/<function>',
)

const HOOK_SECRET = /^v1,whsec_[A-Za-z0-9+/=]{32,88}$/
const KEY_PAIR = /^v1a,whpk_[A-Za-z0-9+/=]+:whsk_[A-Za-z0-9+/=]+$/
/** Several secrets are allowed during a rotation. */
export const areHookSecrets = (text: string): boolean =>
  text === '' || text.split('|').every((one) => HOOK_SECRET.test(one) || KEY_PAIR.test(one))
export const HOOK_SECRETS_FORMAT = 'must be v1,whsec_<base64 of 24 to 66 bytes>, several separated by |'

/** Templates are not checked: no Auth server renders them here. */
export const Message = Text.max(2_000)
/** The total length of all mail bodies is checked in `consistency.ts`. */
export const MailBody = Text.max(200_000)

export const Email = z.email().max(320)
export const Instant = z.iso.datetime({ offset: true })
