import { FIELD_ENTRIES } from '../../src/management/service-config/auth-config/fields.ts'
import document from '../management/openapi/v1.json' with { type: 'json' }

type Value = string | number | boolean
export type Config = Record<string, Value | null>

interface Schema {
  type?: string | string[]
  anyOf?: Schema[]
  enum?: string[]
  minimum?: number
  maximum?: number
  maxLength?: number
}

export interface FieldValues {
  name: string
  secret: boolean
  takesNull: boolean
  default: Value | null
  /** A value just inside its limits: with all of them, the whole configuration is accepted. */
  least: Value
  most: Value
  /** Values just outside the limits. */
  refused: readonly unknown[]
}

const long = (length: number, start = '', end = '') => start + 'x'.repeat(length - start.length - end.length) + end
const secretOf = (length: number) => `v1,whsec_${'A'.repeat(length)}`

/** Values of fields whose form is not a number. */
const FORMS: [RegExp, Pick<FieldValues, 'least' | 'most' | 'refused'>][] = [
  [
    /^(site_url|saml_external_url)$/,
    {
      least: 'localhost',
      most: long(2_000, 'https://a.example/'),
      refused: ['https://a.example,https://b.example', '', long(2_001, 'https://a.example/'), 'a\0b'],
    },
  ],
  [
    /^webauthn_rp_origins$/,
    {
      least: 'http://localhost:3000',
      most: 'https://a.example, https://b.example:8443,',
      refused: ['https://a.example/', 'a.example', 'https://a.example,x'],
    },
  ],
  [
    /^(smtp_host|webauthn_rp_id)$/,
    { least: 'a', most: 'a.b-c.example', refused: ['-a.example', 'a..b', 'a b', long(254)] },
  ],
  // A share is at most 100.
  [/^db_max_pool_size_unit$/, { least: 'percent', most: 'connections', refused: ['other', 1] }],
  [/^smtp_port$/, { least: '1', most: '65535', refused: ['0', '65536', '', 'smtp', 25] }],
  [/^smtp_admin_email$/, { least: 'a@b.co', most: `${long(64)}@b.example`, refused: ['a', 'a@b', 'a b@c.example'] }],
  [
    /^hook_.*_uri$/,
    {
      least: 'pg-functions://postgres/public/f',
      most: long(2_000, 'https://a.example/'),
      refused: [
        'http://a.example',
        'pg-functions://postgres/f',
        'pg-functions://postgres/public/a-b',
        'ftp://a.example',
        long(2_001, 'https://a.example/'),
      ],
    },
  ],
  [
    /^hook_.*_secrets$/,
    {
      least: secretOf(32),
      most: `${secretOf(88)}|${secretOf(88)}`,
      refused: [secretOf(31), secretOf(89), 'whsec_AAAA', `${secretOf(32)}|`],
    },
  ],
  [
    /^sms_test_otp$/,
    { least: '', most: '1=1,123456789012345=0,', refused: ['1=', '1234567890123456=1', 'a=1', '1=1;2=2'] },
  ],
  [
    /^sms_test_otp_valid_until$/,
    {
      least: '2000-01-01T00:00:00Z',
      most: '2100-12-31T23:59:59.999+02:00',
      refused: ['2100-12-31', '2100-02-30T00:00:00Z'],
    },
  ],
  [/^sessions_tags$/, { least: '', most: ' a , b-c,, d_1', refused: ['a b', 'a;b', long(2_001)] }],
  [
    /^(mailer_subjects_.*|sms_template|mfa_phone_template)$/,
    {
      least: '',
      most: long(2_000, '{{ if .Data.a }}{{ .Code | printf "%s" }}{{ else }}', '{{ end }}'),
      refused: [long(2_001)],
    },
  ],
  [
    /^mailer_templates_/,
    {
      least: '',
      // Only some fields accept longer values.
      most: long(76_000, '<p>{{- .Token -}}</p>'),
      refused: [long(200_001)],
    },
  ],
]

function boundsOf(name: string, { type, enum: values, minimum = 0, maximum = 0, maxLength = 0 }: Schema) {
  const form = FORMS.find(([pattern]) => pattern.test(name))?.[1]
  if (form) return form
  if (values) return { least: values[0] as string, most: values.at(-1) as string, refused: ['other', 1] }
  const kind = [type].flat()[0]
  if (kind === 'boolean') return { least: false, most: true, refused: ['true', 1] }
  if (kind === 'string')
    return { least: 'x', most: long(maxLength), refused: [long(maxLength + 1), 1, 'a\0b', '\ud800'] }
  const fraction = kind === 'integer' ? [minimum + 0.5] : []
  return { least: minimum, most: maximum, refused: [minimum - 1, maximum + 1, ...fraction, String(minimum)] }
}

const { UpdateAuthConfig, AuthConfig } = document.components.schemas
const replies = AuthConfig.properties as Record<string, { description?: string; default?: Value }>

const readOnly = new Set<string>(FIELD_ENTRIES.filter(([, field]) => field.readOnly).map(([name]) => name))

/** Every field that PATCH changes, from the published document. */
export const FIELD_VALUES: readonly FieldValues[] = Object.entries<Schema>(UpdateAuthConfig.properties)
  .filter(([name]) => !readOnly.has(name))
  .map(([name, schema]) => ({
    name,
    secret: replies[name]?.description?.startsWith('HMAC') ?? false,
    takesNull: JSON.stringify(schema).includes('null'),
    default: replies[name]?.default ?? null,
    ...boundsOf(name, schema.anyOf?.[0] ?? schema),
  }))
