import { startServices } from '../../dev/services.ts'

/** Serves a folder until the parent process disconnects: `services-process.ts <folder> <base URL>`. */
const [, , folder = '', baseUrl = ''] = process.argv
const { vars, secrets, controlUrl, host, stop } = await startServices({
  ...{ folder, baseUrl, durable: false, sleepAfterSeconds: 20 },
})
process.once('disconnect', () => void stop().then(() => process.exit(0)))
process.send?.({
  vars,
  secrets,
  controlUrl,
  adminUrl: host.adminUrl('control'),
  host: { url: host.url, run: host.run },
})
