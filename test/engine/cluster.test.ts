import { expect, onTestFinished, test, vi } from 'vitest'
import { TEMPLATE } from '../../src/engine/template.ts'
import { asAdmin, leftOf, newRef, specOf, useEngine } from './copy-projects.ts'

const { engine, cluster } = await useEngine()

test('a project is created while others rename and drop databases of theirs', async () => {
  const ref = newRef()
  const [open, renamed] = [`of_others_${newRef()}`, `of_others_${newRef()}`]
  const other = await asAdmin('postgres')
  onTestFinished(async () => {
    await other.end()
    await engine.remove(ref)
    await cluster.query(`drop database if exists ${renamed}`)
  })
  // Other tests create projects too, which close what they find open: they wait.
  const turn = `hashtextextended('${TEMPLATE}', 0)`
  await cluster.query(`select pg_advisory_lock(${turn})`)
  await cluster.query(`create database ${open}`)
  await other.query(`begin; alter database ${open} rename to ${renamed}`)
  await cluster.query(`select pg_advisory_unlock(${turn})`)

  const creating = engine.create(specOf(ref))
  creating.catch(() => {})
  const waiting = `select from pg_stat_activity where wait_event_type = 'Lock' and query ~ '^REVOKE ALL ON DATABASE ${open}'`
  await vi.waitFor(async () => expect((await cluster.query(waiting)).rows).toHaveLength(1), { timeout: 10_000 })
  await other.query('commit')

  await creating
  expect(await leftOf(ref)).not.toEqual([])
})
