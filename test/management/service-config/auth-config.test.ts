import { createHmac } from 'node:crypto'
import { and, asc, eq } from 'drizzle-orm'
import { beforeAll, describe, expect, inject, it } from 'vitest'
import { openAuthSecret } from '../../../src/model/secrets/auth.ts'
import { auditLog, projectSettings } from '../../../src/model/tables/index.ts'
import { control, newApp, newMember, newOrganization, type TestOrganization } from '../../support/api.ts'
import { createProject, newProject, untilGone } from '../../support/projects.ts'

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

async function newConfig() {
  const ref = await createProject(organization)
  const path = `/v1/projects/${ref}/config/auth`
  const { owner } = organization
  return {
    ref,
    path,
    read: async () => (await owner.get(path)).body,
    change: (body: object) => owner.patch(path, body),
  }
}

const hmac = (ref: string, secret: string) => createHmac('sha256', ref).update(secret).digest('hex')

const NAMES_OF_NOTICES =
  'password_changed email_changed phone_changed mfa_factor_enrolled mfa_factor_unenrolled identity_linked identity_unlinked'

/** The observed reply of a fresh project. */
const DEFAULTS: [unknown, string][] = [
  [
    true,
    'refresh_token_rotation_enabled audit_log_disable_postgres external_email_enabled mailer_secure_email_change_enabled mfa_totp_enroll_enabled mfa_totp_verify_enabled index_worker_ensure_user_search_indexes_exist',
  ],
  [0, 'sessions_timebox sessions_inactivity_timeout'],
  [2, 'rate_limit_email_sent'],
  [3, 'custom_oauth_max_providers'],
  [5, 'mfa_phone_max_frequency sms_max_frequency'],
  [6, 'mfa_phone_otp_length password_min_length sms_otp_length'],
  [8, 'mailer_otp_length'],
  [10, 'api_max_request_duration db_max_pool_size security_refresh_token_reuse_interval mfa_max_enrolled_factors'],
  [30, 'rate_limit_anonymous_users rate_limit_sms_sent rate_limit_verify rate_limit_otp rate_limit_web3'],
  [60, 'sms_otp_exp smtp_max_frequency'],
  [150, 'rate_limit_token_refresh'],
  [3_600, 'jwt_exp mailer_otp_exp'],
  ['', 'uri_allow_list'],
  ['connections', 'db_max_pool_size_unit'],
  ['http://localhost:3000', 'site_url'],
  ['hcaptcha', 'security_captcha_provider'],
  ['twilio', 'sms_provider'],
  ['Your code is {{ .Code }}', 'sms_template mfa_phone_template'],
  ['Confirm Your Signup', 'mailer_subjects_confirmation'],
  ['Confirm Email Change', 'mailer_subjects_email_change'],
  ['You have been invited', 'mailer_subjects_invite'],
  ['Your Magic Link', 'mailer_subjects_magic_link'],
  ['Confirm Reauthentication', 'mailer_subjects_reauthentication'],
  ['Reset Your Password', 'mailer_subjects_recovery'],
  ['Your password has been changed', 'mailer_subjects_password_changed_notification'],
  ['Your email address has been changed', 'mailer_subjects_email_changed_notification'],
  ['Your phone number has been changed', 'mailer_subjects_phone_changed_notification'],
  ['A new MFA factor has been enrolled', 'mailer_subjects_mfa_factor_enrolled_notification'],
  ['An MFA factor has been unenrolled', 'mailer_subjects_mfa_factor_unenrolled_notification'],
  ['A new identity has been linked', 'mailer_subjects_identity_linked_notification'],
  ['An identity has been unlinked', 'mailer_subjects_identity_unlinked_notification'],
  [
    null,
    'sessions_tags hook_custom_access_token_uri hook_send_email_secrets nimbus_oauth_client_id nimbus_oauth_client_secret nimbus_oauth_email_optional external_apple_additional_client_ids external_azure_url external_google_skip_nonce_check external_github_client_id external_workos_secret webauthn_rp_id webauthn_rp_origins password_required_characters saml_external_url security_captcha_secret sms_test_otp sms_test_otp_valid_until sms_twilio_content_sid sms_vonage_api_key smtp_admin_email smtp_host smtp_pass smtp_port smtp_sender_name smtp_user oauth_server_authorization_path',
  ],
]

describe('the configuration of Auth', () => {
  it('has the defaults of a fresh project, and false or null for the other fields', async () => {
    const { read } = await newConfig()
    const config = await read()
    expect(Object.keys(config)).toHaveLength(241)
    const named = DEFAULTS.flatMap(([value, names]) => names.split(' ').map((name) => [name, value]))
    expect(config).toMatchObject(Object.fromEntries(named))
    const notNamed = Object.entries(config).filter(([name]) => !named.some(([known]) => known === name))
    const texts = notNamed.filter(([, value]) => value !== false && value !== null)
    const mails = 'confirmation email_change invite magic_link reauthentication recovery'.split(' ')
    const notices = NAMES_OF_NOTICES.split(' ').map((name) => `${name}_notification`)
    expect(texts.map(([name]) => name).sort()).toEqual(
      [...mails, ...notices].map((name) => `mailer_templates_${name}_content`).sort(),
    )
    for (const [, text] of texts) expect(text).toMatch(/^<h1>.*\{\{ \.\w+ \}\}/s)
    const nulls = notNamed.filter(([, value]) => value === null).map(([name]) => name)
    expect(
      nulls.filter(
        (name) => !/^(external_\w+_(client_id|secret|url|ids)|hook_\w+_(uri|secrets)|sms_|webauthn_)/.test(name),
      ),
    ).toEqual([])
  })

  it('keeps unnamed fields, takes null for the default, and accepts the current value of a read-only field', async () => {
    const { read, change } = await newConfig()
    const first = await change({ jwt_exp: 60, disable_signup: true, custom_oauth_max_providers: 3 })
    expect(first).toMatchObject({
      status: 200,
      body: { jwt_exp: 60, disable_signup: true, custom_oauth_max_providers: 3 },
    })
    const second = await change({ jwt_exp: null, site_url: 'https://app.example' })
    expect(second.body).toMatchObject({ jwt_exp: 3_600, disable_signup: true, site_url: 'https://app.example' })
    expect(await read()).toEqual(second.body)
    expect(await change(second.body)).toMatchObject({ status: 200, body: second.body })
  })

  it.each([
    ['a field that it does not know', { site_ulr: 'https://app.example' }, 'site_ulr'],
    [
      'another value of a field that cannot be changed',
      { custom_oauth_max_providers: 99 },
      'custom_oauth_max_providers',
    ],
    ['a value for a field that is not set and cannot be', { nimbus_oauth_email_optional: true }, 'nimbus_oauth_email'],
  ])('refuses %s, and changes nothing', async (_, fields, name) => {
    const { read, change } = await newConfig()
    const before = await read()
    expect(await change({ jwt_exp: 60, ...fields })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining(name) },
    })
    expect(await read()).toEqual(before)
  })

  it.each([
    ['site_url', ['example.com', '127.0.0.1:3000', 'localhost:3000', 'myapp://', '/relative']],
    ['uri_allow_list', ['', 'example.com,*.example.com/**', '**, my_app://x ,,https://*.a.example/**']],
    ['external_gitlab_url', ['', 'gitlab.example.com', 'https://gitlab.example.com']],
    ['saml_external_url', ['example.com', 'https://example.com/auth']],
    ['oauth_server_authorization_path', ['', 'consent', '/oauth/consent']],
  ])('accepts %s unchanged, with a scheme or without', async (name, values) => {
    const { change } = await newConfig()
    for (const value of values)
      expect(await change({ [name]: value })).toMatchObject({ status: 200, body: { [name]: value } })
  })

  it('seals secrets, returns their digest, and takes a digest for the present secret', async () => {
    const { ref, read, change } = await newConfig()
    const secrets = { external_github_secret: 'gh-secret', smtp_pass: 'pässwörd', sms_vonage_api_secret: 'v0nage' }
    expect(await change(secrets)).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('body.smtp_host') },
    })
    const mail = { smtp_host: 'mail.example', smtp_port: '587', smtp_user: 'u', smtp_admin_email: 'a@mail.example' }
    const { body } = await change({ ...secrets, ...mail })
    const digests = Object.entries(secrets).map(([name, secret]) => [name, hmac(ref, secret)])
    expect(body).toMatchObject(Object.fromEntries(digests))
    const row = async () => {
      const [kept] = await control.select().from(projectSettings).where(eq(projectSettings.projectRef, ref))
      return kept?.value as { secrets: Record<string, { sealed: string }> }
    }
    const before = await row()
    for (const secret of Object.values(secrets)) expect(JSON.stringify(before)).not.toContain(secret)
    const { sealed = '' } = before.secrets.smtp_pass ?? {}
    expect(await openAuthSecret(inject('encryptionKey'), ref, 'smtp_pass', sealed)).toBe('pässwörd')
    await expect(openAuthSecret(inject('encryptionKey'), ref, 'external_x_secret', sealed)).rejects.toThrow()
    expect((await change(body)).body).toEqual(body)
    expect(await row()).toEqual(before)
    const removed = await change({ external_github_secret: '', sms_vonage_api_secret: null })
    expect(removed.body).toMatchObject({ external_github_secret: null, sms_vonage_api_secret: null })
    expect(await read()).toEqual(removed.body)
  })

  it('takes each returned digest for the present value, and refuses another one if it cannot be a secret', async () => {
    const { ref, read, change } = await newConfig()
    const hooks = ['A', 'B'].map((letter) => `v1,whsec_${letter.repeat(32)}`)
    for (const [index, hook_send_sms_secrets] of hooks.entries()) {
      await change({ hook_send_sms_secrets, external_x_secret: `x${index}` })
    }
    const before = await read()
    const old = { hook_send_sms_secrets: hmac(ref, hooks[0] ?? ''), external_x_secret: hmac(ref, 'x0') }
    for (const body of [before, old]) expect(await change(body)).toMatchObject({ status: 200, body: before })
    expect(await change({ jwt_exp: 9, hook_send_sms_secrets: hmac('other', 'x') })).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('body.hook_send_sms_secrets: must be v1,whsec_') },
    })
    expect((await change({ hook_send_sms_secrets: '', external_x_secret: null })).status).toBe(200)
    const without = { ...before, hook_send_sms_secrets: null, external_x_secret: null }
    expect(await change(old)).toMatchObject({ status: 200, body: without })
    expect(await read()).toEqual(without)
  })

  it('removes the whole mail server with an empty host', async () => {
    const { change, read } = await newConfig()
    const fresh = await read()
    const mail = {
      smtp_port: '25',
      smtp_user: 'u',
      smtp_pass: 'p',
      smtp_admin_email: 'a@mail.example',
      smtp_sender_name: 'Us',
    }
    for (const host of ['', null]) {
      expect((await change({ ...mail, smtp_host: 'mail.example' })).body).toMatchObject({ smtp_host: 'mail.example' })
      expect((await change({ smtp_host: host })).body).toEqual(fresh)
    }
    const half = await change({ smtp_host: '', smtp_port: '25' })
    expect(half).toMatchObject({ status: 400, body: { message: expect.stringContaining('body.smtp_host') } })
  })

  it('loses no simultaneous change, and has an entry in the audit log for each', async () => {
    const { ref, read, change } = await newConfig()
    const bodies = [
      { jwt_exp: 61 },
      { site_url: 'myapp://home' },
      { external_x_client_id: 'x' },
      { external_x_secret: 'sssh' },
    ]
    const replies = await Promise.all(bodies.map((body) => change(body)))
    expect(replies.map(({ status }) => status)).toEqual([200, 200, 200, 200])
    expect(await read()).toMatchObject({ ...Object.assign({}, ...bodies), external_x_secret: hmac(ref, 'sssh') })
    await change({})
    await change({ jwt_exp: 61, external_x_secret: 'sssh' })
    await change({ jwt_exp: -1 })
    await change({ jwt_exp: null, disable_signup: true })
    const entries = await control
      .select()
      .from(auditLog)
      .where(and(eq(auditLog.projectRef, ref), eq(auditLog.action, 'project.auth.update')))
      .orderBy(asc(auditLog.createdAt))
    expect(entries).toHaveLength(5)
    for (const entry of entries) {
      expect(entry).toMatchObject({ actorUserId: organization.userId, organizationId: organization.id })
    }
    const fields = entries.map(({ detail }) => (detail as { fields: string[] }).fields)
    expect(fields.slice(0, 4).flat().sort()).toEqual([
      'external_x_client_id',
      'external_x_secret',
      'jwt_exp',
      'site_url',
    ])
    expect(fields[4]?.toSorted()).toEqual(['disable_signup', 'jwt_exp'])
    expect(JSON.stringify(entries)).not.toContain('sssh')
  })

  it('requires the right and the scope to read or change it', async () => {
    const { path } = await newConfig()
    const [administrator, developer, reader, reads, writes, other] = await Promise.all([
      newMember(organization, 'administrator'),
      newMember(organization, 'developer'),
      newMember(organization, 'read-only'),
      newApp(organization, ['auth:read']),
      newApp(organization, ['auth:write']),
      newOrganization(),
    ])
    const callers = [administrator, developer, reader, reads.caller, writes.caller, other.owner]
    const read = await Promise.all(callers.map((caller) => caller.get(path)))
    expect(read.map(({ status }) => status)).toEqual([200, 200, 200, 200, 403, 404])
    const written = await Promise.all(callers.map((caller) => caller.patch(path, { jwt_exp: 99 })))
    expect(written.map(({ status }) => status)).toEqual([200, 403, 403, 403, 200, 404])
  })

  it('is deleted with the project', async () => {
    const ref = await newProject(organization)
    const config = `/v1/projects/${ref}/config`
    await organization.owner.patch(`${config}/auth`, { external_x_secret: 'sssh' })
    await organization.owner.patch(`${config}/database/pooler`, { default_pool_size: 3 })
    await organization.owner.delete(`/v1/projects/${ref}`)
    await untilGone(organization.owner, ref)
    const path = `/v1/projects/${ref}/config/auth`
    const replies = await Promise.all([organization.owner.get(path), organization.owner.patch(path, { jwt_exp: 5 })])
    expect(replies.map(({ status }) => status)).toEqual([404, 404])
    expect(await control.select().from(projectSettings).where(eq(projectSettings.projectRef, ref))).toEqual([])
  })
})

describe('a contradiction in the configuration of Auth', () => {
  let config: Awaited<ReturnType<typeof newConfig>>
  beforeAll(async () => {
    config = await newConfig()
  })

  const mail = {
    smtp_host: 'm.example',
    smtp_port: '25',
    smtp_user: 'u',
    smtp_pass: 'p',
    smtp_admin_email: 'a@m.example',
  }
  const hook = { hook_send_email_enabled: true, hook_send_email_uri: 'https://a.example' }
  const phone = { external_phone_enabled: true, sms_twilio_account_sid: 'AC', sms_twilio_auth_token: 't' }
  it.each<[object, string[]]>([
    [{ external_github_enabled: true }, ['external_github_client_id', 'external_github_secret']],
    [{ external_github_enabled: true, external_github_client_id: 'x' }, ['external_github_secret']],
    [{ external_github_enabled: true, external_github_secret: 'x' }, ['external_github_client_id']],
    [{ external_google_enabled: true }, ['external_google_client_id']],
    [
      { external_keycloak_enabled: true, external_keycloak_client_id: 'x', external_keycloak_secret: 'x' },
      ['external_keycloak_url'],
    ],
    [{ hook_send_sms_enabled: true }, ['hook_send_sms_uri']],
    [{ hook_send_sms_enabled: true, hook_send_sms_uri: '' }, ['hook_send_sms_uri']],
    [hook, ['hook_send_email_secrets']],
    ...Object.keys(mail).map((name): [object, string[]] => [{ ...mail, [name]: undefined }, [name]]),
    [{ smtp_user: 'u' }, ['smtp_host']],
    [{ security_captcha_enabled: true }, ['security_captcha_secret']],
    [phone, ['sms_twilio_message_service_sid']],
    [{ ...phone, sms_provider: 'messagebird' }, ['sms_messagebird_access_key', 'sms_messagebird_originator']],
    [
      { external_phone_enabled: true, sms_provider: 'vonage' },
      ['sms_vonage_api_key', 'sms_vonage_api_secret', 'sms_vonage_from'],
    ],
    [{ external_phone_enabled: true, sms_provider: 'textlocal' }, ['sms_textlocal_api_key', 'sms_textlocal_sender']],
    [{ external_phone_enabled: true, sms_provider: 'twilio_verify' }, ['sms_twilio_verify_auth_token']],
    [{ passkey_enabled: true }, ['webauthn_rp_id', 'webauthn_rp_origins']],
    [{ db_max_pool_size: 101, db_max_pool_size_unit: 'percent' }, ['db_max_pool_size']],
  ])('is refused with its field names, and nothing of it is stored: %j', async (body, names) => {
    const before = await config.read()
    const reply = await config.change({ jwt_exp: 7, ...body })
    expect(reply.status).toBe(400)
    for (const name of names) expect(reply.body.message).toContain(`body.${name}: must be `)
    expect(await config.read()).toEqual(before)
  })

  it('is checked together with the stored values', async () => {
    const { change } = await newConfig()
    const given = { external_github_client_id: 'x', external_github_secret: 'y' }
    expect((await change(given)).status).toBe(200)
    expect((await change({ external_github_enabled: true })).status).toBe(200)
    for (const name of Object.keys(given)) {
      expect(await change({ [name]: null })).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining(name) },
      })
    }
    expect((await change({ external_github_enabled: false, external_github_secret: null })).status).toBe(200)
  })

  it.each([
    [
      {
        external_anonymous_users_enabled: true,
        external_web3_solana_enabled: true,
        external_web3_ethereum_enabled: true,
      },
    ],
    [{ external_google_enabled: true, external_google_client_id: 'a,b' }],
    [{ external_apple_enabled: true, external_apple_additional_client_ids: 'com.example.app' }],
    [
      {
        external_gitlab_enabled: true,
        external_gitlab_client_id: 'x',
        external_gitlab_secret: 'y',
        external_gitlab_url: '',
      },
    ],
    [
      {
        external_phone_enabled: true,
        hook_send_sms_enabled: true,
        hook_send_sms_uri: 'pg-functions://postgres/public/send',
      },
    ],
    [{ hook_send_email_enabled: true, hook_send_email_uri: 'pg-functions://postgres/public/mail' }],
    [
      {
        ...hook,
        hook_send_email_uri: 'http://localhost:9000/mail',
        hook_send_email_secrets: `v1,whsec_${'A'.repeat(32)}`,
      },
    ],
    [{ saml_enabled: true, saml_external_url: 'https://sso.example' }],
    [{ db_max_pool_size: 100, db_max_pool_size_unit: 'percent' }],
    [{ oauth_server_enabled: true, oauth_server_authorization_path: '/oauth/consent' }],
  ])('does not include %j', async (body) => {
    expect((await config.change(body)).status).toBe(200)
  })
})
