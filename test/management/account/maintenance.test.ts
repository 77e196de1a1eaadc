import { beforeAll, describe, expect, inject, it } from 'vitest'
import { readConfig } from '../../../src/config.ts'
import { listMaintenanceWindows } from '../../../src/management/account/maintenance/service.ts'
import { newMember, newOrganization, type TestOrganization } from '../../support/api.ts'

/** The window that test/global-setup.ts sets. */
const WINDOW = { day: 'sun', start_utc: '23:30', duration_minutes: 60 }
const SUNDAY = Date.UTC(2030, 0, 6, 23, 30)
const HOUR = 3_600_000
const DAY = 24 * HOUR

const times = (start: number) => ({
  start_at: new Date(start).toISOString(),
  end_at: new Date(start + HOUR).toISOString(),
})
const weeksAfter = (start: number) => [1, 2, 3, 4].map((week) => times(start + week * 7 * DAY))

let organization: TestOrganization
beforeAll(async () => {
  organization = await newOrganization()
})

describe('GET /v2/organizations/{slug}/maintenance/windows', () => {
  it.each([
    ['as it begins', SUNDAY, times(SUNDAY), SUNDAY],
    ['in it, on the day after', SUNDAY + HOUR - 1, times(SUNDAY), SUNDAY],
    ['as it has ended', SUNDAY + HOUR, null, SUNDAY],
    ['before it, on the same day', SUNDAY - 1, null, SUNDAY - 7 * DAY],
    ['in the middle of the week', SUNDAY + 3 * DAY, null, SUNDAY],
  ])('returns the window of the installation %s', async (_when, now, current_window, latest) => {
    const member = await newMember(organization, 'read-only')
    const reply = await member.at(new Date(now)).get(`/v2/organizations/${organization.slug}/maintenance/windows`)
    expect(reply.status).toBe(200)
    expect(reply.body).toEqual({
      data: [
        {
          type: 'maintenance_window',
          id: 'installation',
          attributes: { window: WINDOW, current_window, next_windows: weeksAfter(latest) },
        },
      ],
    })
  })

  const configOf = (MAINTENANCE_WINDOW?: string) =>
    readConfig({
      ...{ BASE_URL: 'https://api.example.com', DATABASE_URL: inject('controlUrl') },
      ...{ ENCRYPTION_KEY: inject('encryptionKey'), NEON_PROXY: 'http://proxy.example.com' },
      ...{ S3_ENDPOINT: 'https://s3.example.com', S3_BUCKET: 'b', S3_ACCESS_KEY_ID: 'a', S3_SECRET_ACCESS_KEY: 's' },
      ...{ ENGINE: 'neon', NEON_API_KEY: 'n', MAINTENANCE_WINDOW },
    } as never)

  it.each([undefined, ''])('is empty if no window is set (%j)', (setting) => {
    expect(listMaintenanceWindows({ config: configOf(setting), now: () => new Date() })).toEqual({ data: [] })
  })

  it.each(['sun', 'sun 3:00 60', 'sun 24:00 60', 'sun 03:00 0', 'sun 03:00 1441', 'day 03:00 60', 'sun 03:00 60 x'])(
    'refuses %j as a setting',
    (setting) => {
      expect(() => configOf(setting)).toThrow('MAINTENANCE_WINDOW')
    },
  )
})
