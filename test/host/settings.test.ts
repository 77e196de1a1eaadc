import { afterAll, beforeAll, expect, test } from 'vitest'
import { Refused } from '../../host/instances/types.ts'
import { applySettings, setSize } from '../../host/settings/apply.ts'
import { readEffectiveSettings } from '../../host/settings/effective-settings.ts'
import { SETTINGS } from '../../host/settings/owner-settings.ts'
import { openWorkplace, type Workplace } from './plain-instance.ts'

let place: Workplace

beforeAll(async () => {
  place = await openWorkplace()
}, 30_000)
afterAll(() => place?.close())

const apply = (set: Record<string, string | number | boolean>) => applySettings(place.instance, { set }, place.trial)

const refusalsOf = async (set: Record<string, string | number | boolean>) => {
  const error = await apply(set).then(
    () => undefined,
    (thrown: unknown) => thrown,
  )
  if (!(error instanceof Refused)) throw error ?? new Error('the settings were accepted')
  return Object.fromEntries(error.refusals.map(({ setting, reason }) => [setting, reason]))
}

const VALUES = {
  effective_cache_size: '1GB',
  logical_decoding_work_mem: '32MB',
  maintenance_work_mem: '48MB',
  track_activity_query_size: '2kB',
  max_slot_wal_keep_size: '2GB',
  max_standby_archive_delay: '1min',
  max_standby_streaming_delay: '45s',
  max_wal_size: '300MB',
  shared_buffers: '24MB',
  statement_timeout: '2min',
  wal_keep_size: '16MB',
  wal_sender_timeout: '2min',
  work_mem: '3MB',
  checkpoint_timeout: '10min',
  max_connections: 70,
  max_locks_per_transaction: 80,
  max_parallel_maintenance_workers: 3,
  max_parallel_workers: 5,
  max_parallel_workers_per_gather: 0,
  max_replication_slots: 12,
  max_wal_senders: 11,
  max_worker_processes: 9,
  session_replication_role: 'local',
  track_commit_timestamp: true,
  hot_standby_feedback: true,
}

test('applies every setting that the specification names with one restart, and shows it as effective', async () => {
  const restarts = place.instance.restarts
  await apply(VALUES)
  expect(place.instance.restarts).toBe(restarts + 1)
  const effective = new Map((await readEffectiveSettings(place.instance)).map((setting) => [setting.name, setting]))
  for (const [name, value] of Object.entries(VALUES)) {
    const text = value === true ? 'on' : String(value)
    expect([name, await place.instance.show(name)]).toEqual([name, text])
    expect(effective.get(name)).toMatchObject({ value: text, pending_restart: false })
  }
  expect(effective.get('statement_timeout')).toMatchObject({
    default: '0',
    source: 'configuration file',
    context: 'user',
  })
  expect(effective.get('log_checkpoints')).toMatchObject({ value: 'on', source: 'default' })
  expect(effective.get('shared_buffers')).toMatchObject({ default: '131072kB' })

  await apply({})
  expect(await place.instance.show('shared_buffers')).toBe('16MB')
  expect(await place.instance.show('max_locks_per_transaction')).toBe('64')
  expect(place.instance.record.settings).toEqual({})
}, 30_000)

test('does not restart for a setting that needs none or does not change', async () => {
  await apply({ max_connections: 61 })
  const restarts = place.instance.restarts
  await apply({ work_mem: '5MB', log_connections: true, max_connections: 61 })
  await apply({ work_mem: '5MB', log_connections: true, max_connections: '61' })
  expect(place.instance.restarts).toBe(restarts)
  expect(await place.instance.show('work_mem')).toBe('5MB')
  await apply({})
}, 30_000)

test('restarts once if told to, and otherwise only for the settings that the change names', async () => {
  const { instance, trial } = place
  await applySettings(instance, { set: { max_connections: 62 }, restart: false }, trial)
  const { restarts } = instance
  await apply({ max_connections: 62, statement_timeout: '9s' })
  await apply({ max_connections: 62, statement_timeout: '9s' })
  expect([await instance.show('max_connections'), await instance.show('statement_timeout')]).toEqual(['60', '9s'])
  expect(instance.restarts).toBe(restarts)
  await apply({ max_connections: 63 })
  expect([await instance.show('max_connections'), instance.restarts]).toEqual(['63', restarts + 1])
  await applySettings(instance, { set: { max_connections: 64 }, restart: 'always' }, trial)
  expect([await instance.show('max_connections'), instance.restarts]).toEqual(['64', restarts + 2])
  await applySettings(instance, { set: { max_connections: 64 }, restart: 'always' }, trial)
  expect(instance.restarts).toBe(restarts + 3)
  await apply({})
}, 30_000)

test.each([
  [{ work_mem: 'much' }, 'work_mem', /^invalid value for parameter "work_mem": "much"/],
  [{ work_mem: '5 parsecs' }, 'work_mem', /Valid units for this parameter are "B", "kB", "MB", "GB", and "TB"/],
  [{ max_replication_slots: -5 }, 'max_replication_slots', /-5 is outside the valid range .*\(0 \.\. 262143\)/],
  [{ max_connections: 10 }, 'max_connections', /must be less than "?max_connections"? \(10\)/],
  [{ max_wal_size: '1MB' }, 'max_wal_size', /1 MB is outside the valid range .*\(2 MB/],
  [{ shared_buffers: '900GB' }, 'shared_buffers', /shared memory/],
  [{ max_connections: 200_000 }, 'max_connections', /MB of shared memory/],
  [{ wal_level: 'minimal' }, 'wal_level', /cannot be set here/],
  [{ archive_command: 'rm -rf /' }, 'archive_command', /cannot be set here/],
  [{ 'pg_net.batch_size': 5 }, 'pg_net.batch_size', /belongs to pg_net/],
  [{ session_replication_role: "x'\nshared_buffers = '1MB" }, 'session_replication_role', /invalid value/],
])(
  'refuses %j with a reason and stays unchanged',
  async (set, setting, reason) => {
    const { record, restarts } = place.instance
    const refusals = await refusalsOf(set as Record<string, string>)
    expect(refusals[setting]).toMatch(reason)
    expect(place.instance.record).toEqual(record)
    expect(place.instance.restarts).toBe(restarts)
  },
  30_000,
)

test('reports all refused values at once', async () => {
  const refusals = await refusalsOf({ work_mem: 'a', checkpoint_timeout: '1s', max_wal_size: '2GB' })
  expect(Object.keys(refusals).sort()).toEqual(['checkpoint_timeout', 'work_mem'])
}, 30_000)

test('leaves a slot for each one that exists, also by a reset', async () => {
  const { instance } = place
  await apply({ max_replication_slots: 12 })
  for (let n = 1; n <= 11; n += 1) await instance.admin.rows(`SELECT pg_create_physical_replication_slot('s${n}')`)
  const { restarts } = instance
  const tooFew = { max_replication_slots: 'must be at least 11, the number of replication slots' }
  expect(await refusalsOf({ max_replication_slots: 1 })).toEqual(tooFew)
  await expect(apply({})).rejects.toMatchObject({
    refusals: [{ setting: 'max_replication_slots', reason: tooFew.max_replication_slots }],
  })
  const later = applySettings(instance, { set: { max_replication_slots: 1 }, restart: false }, place.trial)
  await expect(later).rejects.toThrow()
  expect([instance.restarts, instance.record.settings]).toEqual([restarts, { max_replication_slots: '12' }])
  await instance.admin.rows('SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots')
  await apply({})
}, 30_000)

test('keeps running with the old settings if the server does not start with the new ones', async () => {
  const { instance } = place
  await apply({ max_replication_slots: 3 })
  const createSlots = async () => {
    for (const slot of ['one', 'two'])
      await instance.admin.rows(`SELECT pg_create_physical_replication_slot('${slot}') WHERE NOT EXISTS (
        SELECT FROM pg_replication_slots WHERE slot_name = '${slot}')`)
  }
  const busy = Object.create(instance, {
    restart: {
      value: () =>
        createSlots()
          .catch(() => {})
          .then(() => instance.restart()),
    },
  })
  const change = applySettings(busy, { set: { max_replication_slots: 1 } }, place.trial)
  await expect(change).rejects.toMatchObject({
    refusals: [{ setting: 'max_replication_slots', reason: expect.stringContaining('too many replication slots') }],
  })
  expect(await instance.show('max_replication_slots')).toBe('3')
  expect(instance.record.settings).toEqual({ max_replication_slots: '3' })
  await instance.admin.rows('SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots')
  await apply({})
}, 30_000)

test('leaves a sender for each read replica', async () => {
  const { instance } = place
  const slot = `${instance.name}_rr_one`
  await instance.admin.rows('SELECT pg_create_physical_replication_slot($1)', [slot])
  expect(await refusalsOf({ max_wal_senders: 0 })).toEqual({
    max_wal_senders: 'must be at least 1, the number of read replicas',
  })
  await instance.admin.rows('SELECT pg_drop_replication_slot($1)', [slot])
}, 30_000)

test('applies the values of a size, below those of the owner', async () => {
  await apply({ work_mem: '7MB' })
  await setSize(place.instance, 'medium', place.trial)
  expect(await place.instance.show('max_connections')).toBe('120')
  expect(await place.instance.show('shared_buffers')).toBe('1GB')
  expect(await place.instance.show('work_mem')).toBe('7MB')
  await expect(setSize(place.instance, 'huge', place.trial)).rejects.toThrow(
    /this host has no size huge: must be one of pico/,
  )
  await setSize(place.instance, 'nano', place.trial)
  expect(await place.instance.show('shared_buffers')).toBe('16MB')
  await apply({})
}, 30_000)

test('refuses memory that the machine cannot map', async () => {
  await place.instance.update({ size: '48xlarge_high_memory' })
  const refusals = await refusalsOf({ shared_buffers: '2500GB' })
  expect(refusals.shared_buffers).toMatch(/could not map anonymous shared memory: Cannot allocate memory/)
  await setSize(place.instance, 'micro', place.trial)
}, 30_000)

test('wakes a sleeping instance to check that it starts, and leaves a paused one paused', async () => {
  const { instance } = place
  await instance.sleep()
  await apply({ max_connections: 62 })
  expect(instance.state()).toBe('running')
  expect(await instance.show('max_connections')).toBe('62')
  await instance.sleep()
  await instance.update({ isPaused: true })
  await apply({})
  expect(instance.state()).toBe('asleep')
  await instance.update({ isPaused: false })
  await instance.wake()
  expect(await instance.show('max_connections')).toBe('60')
}, 30_000)

test('leaves out settings of a missing library', async () => {
  const names = new Set((await readEffectiveSettings(place.instance)).map(({ name }) => name))
  expect([...SETTINGS].filter((name) => !names.has(name))).toEqual(['cron.log_statement', 'pg_net.batch_size'])
})

test('shows what the owner set for the database in SQL', async () => {
  const { admin } = place.instance
  await admin.rows(`ALTER DATABASE postgres SET statement_timeout = '7s'; ALTER DATABASE postgres SET work_mem = '9MB'`)
  const effective = await readEffectiveSettings(place.instance)
  expect(effective.find(({ name }) => name === 'statement_timeout')).toMatchObject({ value: '7s', source: 'database' })
  expect(effective.find(({ name }) => name === 'work_mem')).toMatchObject({ value: '9MB', source: 'database' })
  await admin.rows('ALTER DATABASE postgres RESET ALL')
})
