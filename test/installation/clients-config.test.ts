import { createHmac } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { SupabaseManagementAPI } from 'supabase-management-js'
import { beforeAll, describe, expect, it } from 'vitest'
import { baseUrl, newOrganization, type TestOrganization } from '../support/api.ts'
import { newCli } from '../support/cli.ts'
import { extended } from '../support/extended.ts'
import { newProject } from '../support/projects.ts'

let organization: TestOrganization
let ref: string
beforeAll(async () => {
  organization = await newOrganization()
  ref = await newProject(organization)
})

const auth = async () => (await organization.owner.get(`/v1/projects/${ref}/config/auth`)).body
const hmac = (secret: string) => createHmac('sha256', ref).update(secret).digest('hex')

const HOOK_SECRET = 'v1,whsec_dGhpcyBpcyBhIHNlY3JldCB0aGF0IGlzIGxvbmc='
const CONFIG = `project_id = "x"
[api]
max_rows = 77
[auth]
site_url = "https://app.example"
additional_redirect_urls = ["https://app.example/**", "myapp://home"]
jwt_expiry = 1800
password_requirements = "lower_upper_letters_digits_symbols"
[auth.sessions]
timebox = "24h"
[auth.email]
max_frequency = "30s"
[auth.email.smtp]
enabled = true
host = "smtp.example.com"
port = 587
user = "u"
pass = "p4ss"
admin_email = "admin@example.com"
sender_name = "Us"
[auth.email.template.invite]
subject = "Come"
content_path = "./supabase/invite.html"
[auth.captcha]
enabled = true
provider = "turnstile"
secret = "captcha"
[auth.hook.custom_access_token]
enabled = true
uri = "pg-functions://postgres/public/hook"
[auth.hook.send_email]
enabled = true
uri = "https://hooks.example/mail"
secrets = "${HOOK_SECRET}"
[auth.sms]
enabled = true
[auth.sms.twilio]
enabled = true
account_sid = "AC1"
message_service_sid = "MG1"
auth_token = "token"
[auth.sms.test_otp]
4152127777 = "123456"
[auth.external.github]
enabled = true
client_id = "gh"
secret = "ghs"
[auth.external.google]
enabled = true
client_id = "a,b"
skip_nonce_check = true
[auth.external.keycloak]
enabled = true
client_id = "kc"
secret = "kcs"
url = "https://keycloak.example/realms/x"
`
const OFF = `project_id = "x"
[auth.email.smtp]
enabled = false
[auth.captcha]
enabled = false
[auth.hook.send_email]
enabled = false
[auth.external.github]
enabled = false
`

describe('supabase config', () => {
  let home: string
  let cli: (...args: string[]) => Promise<string>
  beforeAll(() => {
    const made = newCli(organization.owner)
    home = made.home
    cli = (command, ...args) => made.run('config', command, `--remote=${ref}`, ...args)
    mkdirSync(join(home, 'supabase'))
    return made.remove
  })
  const file = () => join(home, 'supabase', 'config.toml')

  it('push sends providers, hooks, mail server and templates once, and diff finds no difference afterwards', async () => {
    writeFileSync(file(), CONFIG)
    writeFileSync(join(home, 'supabase', 'invite.html'), '<p>{{ .ConfirmationURL }}</p>')
    expect(await cli('diff')).toContain('auth.site_url [update]')
    await cli('push', '--yes')
    const config = await auth()
    expect(config).toMatchObject({
      site_url: 'https://app.example',
      uri_allow_list: 'https://app.example/**,myapp://home',
      jwt_exp: 1800,
      sessions_timebox: 24,
      smtp_host: 'smtp.example.com',
      smtp_port: '587',
      smtp_pass: hmac('p4ss'),
      smtp_max_frequency: 30,
      mailer_subjects_invite: 'Come',
      mailer_templates_invite_content: '<p>{{ .ConfirmationURL }}</p>',
      security_captcha_secret: hmac('captcha'),
      hook_custom_access_token_enabled: true,
      hook_send_email_secrets: hmac(HOOK_SECRET),
      external_phone_enabled: true,
      sms_provider: 'twilio',
      sms_test_otp: '4152127777=123456',
      external_github_secret: hmac('ghs'),
      external_google_client_id: 'a,b',
      external_keycloak_url: 'https://keycloak.example/realms/x',
    })
    const api = await organization.owner.get(`/v1/projects/${ref}/postgrest`)
    expect(api.body).toMatchObject({ max_rows: 77 })
    expect(await cli('diff')).toMatch(/\(0 update, \d+ remote-only, 0 local-only\)/)
    await cli('push', '--yes')
    expect(await auth()).toEqual(config)
  })

  it('pull writes no version of Postgres that the CLI refuses to read', async () => {
    writeFileSync(file(), 'project_id = "x"\n[db]\nmajor_version = 15\n')
    await cli('pull', '--yes')
    expect(readFileSync(file(), 'utf8')).toContain('major_version = 17')
    expect(await cli('diff')).not.toContain('major_version')
  })

  extended(
    'push turns off what is not enabled, and pull writes the settings of the project',
    async () => {
      writeFileSync(file(), OFF)
      await cli('push', '--yes')
      expect(await auth()).toMatchObject({
        smtp_host: null,
        smtp_pass: null,
        security_captcha_enabled: false,
        hook_send_email_enabled: false,
        external_github_enabled: false,
        external_keycloak_enabled: true,
      })
      await cli('pull', '--yes')
      const pulled = readFileSync(file(), 'utf8')
      for (const line of [
        'site_url = "https://app.example"',
        'jwt_expiry = 1800',
        'max_rows = 77',
        'timebox = "24h0m0s"',
      ]) {
        expect(pulled).toContain(line)
      }
      expect(await cli('diff')).toMatch(/no differences|\(0 update/i)
    },
    60_000,
  )

  it('push with database webhooks fails with the reason, after it sent everything else', async () => {
    writeFileSync(file(), 'project_id = "x"\n[api]\nmax_rows = 78\n[experimental.webhooks]\nenabled = true\n')
    await expect(cli('push', '--yes')).rejects.toThrow(
      /the driver host does not install the triggers that send database webhooks/,
    )
    const api = await organization.owner.get(`/v1/projects/${ref}/postgrest`)
    expect(api.body).toMatchObject({ max_rows: 78 })
  })
})

it('supabase-management-js reads the configuration of Auth and changes it', async () => {
  const api = new SupabaseManagementAPI({ accessToken: organization.owner.token ?? '', baseUrl })
  const { data: before } = await api.getAuthServiceConfig(ref)
  expect(before).toMatchObject({ mfa_totp_enroll_enabled: true })
  const { data: after } = await api.updateAuthServiceConfig(ref, { mfa_totp_enroll_enabled: false, jwt_exp: 120 })
  expect(after).toEqual({ ...before, mfa_totp_enroll_enabled: false, jwt_exp: 120 })
  await expect(api.updateAuthServiceConfig(ref, { jwt_exp: 604_801 })).rejects.toThrow(/body\.jwt_exp/)
})

it('the calls of a Terraform resource of settings, in their order, read what they wrote', async () => {
  const { owner } = organization
  const steps: [string, 'get' | 'patch' | 'put', object?][] = [
    ['postgrest', 'patch', { db_schema: 'public', max_rows: 100 }],
    ['config/auth', 'patch', { site_url: 'https://tf.example', external_zoom_secret: 'zs' }],
    ['config/database/postgres', 'put', { work_mem: '4MB' }],
    ['ssl-enforcement', 'put', { requestedConfig: { database: false } }],
    ['config/storage', 'patch', { fileSizeLimit: 1000 }],
    ['postgrest', 'get'],
    ['config/auth', 'get'],
    ['config/database/postgres', 'get'],
    ['ssl-enforcement', 'get'],
    ['config/storage', 'get'],
    ['health?services=auth,db,rest,storage', 'get'],
  ]
  const replies = new Map<string, unknown>()
  for (const [path, method, body] of steps) {
    const url = `/v1/projects/${ref}/${path}`
    const reply = method === 'get' ? await owner.get(url) : await owner[method](url, body)
    expect([path, reply.status, reply.headers.get('content-type')]).toEqual([
      path,
      200,
      expect.stringContaining('json'),
    ])
    replies.set(`${method} ${path}`, reply.body)
  }
  expect(replies.get('get config/auth')).toEqual(replies.get('patch config/auth'))
  expect(replies.get('get config/auth')).toMatchObject({
    site_url: 'https://tf.example',
    external_zoom_secret: hmac('zs'),
  })
  expect(replies.get('get postgrest')).toMatchObject({ db_schema: 'public', max_rows: 100 })
  expect(replies.get('get config/database/postgres')).toMatchObject({ work_mem: '4MB' })
})
