#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trace.py torture|mutants|hostile|page|costs SWITCHTO-TRACE TRACED-PROGRAM [TRACE]
Traces that are true, changed, broken; the page in a browser; and instructions, by callgrind."""

import base64
import json
import os
import random
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile

READY, RUN, SLEEP, END = 2, 3, 4, 5
PAGE, EVENT = 4096, 32
mode, tool, program = sys.argv[1:4]
folder = tempfile.mkdtemp(prefix='switchto-trace-', dir='/dev/shm')


def fail(text):
    sys.exit(f'trace.py: {text}')


def skip(text):
    print(f'trace.py: skipped: {text}')
    sys.exit(77)


def show(path, *options, status=0, limit=120):
    """stdout of the tool, or its one line on stderr."""
    run = subprocess.run([tool, *options, path], stdin=subprocess.DEVNULL, capture_output=True,
                         text=True, timeout=limit, check=False)
    if run.returncode != status:
        fail(f'{options} of {path}: wanted status {status}, found {run.returncode}: '
             f'{run.stdout[-600:]}{run.stderr[-600:]}')
    return run.stderr if status == 2 else run.stdout


def record(name, *command):
    path = os.path.join(folder, name)
    run = subprocess.run(command, env=dict(os.environ, SWITCHTO_TRACE=path), check=False,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    if run.returncode == 77:
        skip(run.stdout.strip())
    if run.returncode or not os.path.exists(path):
        fail(f'{command}: status {run.returncode}: {run.stdout[-300:]}{run.stderr[-600:]}')
    return path


class File:
    """The events of a trace, to change them."""

    def __init__(self, path):
        with open(path, 'rb') as file:
            self.data = bytearray(file.read())
        self.lanes, self.places = struct.unpack_from('=II', self.data, 8)
        self.first = PAGE + (self.lanes * 64 + PAGE - 1) // PAGE * PAGE

    def count(self, lane):
        return struct.unpack_from('=Q', self.data, PAGE + 64 * lane)[0]

    def at(self, lane, i):
        return self.first + (lane * self.places + i) * EVENT

    def get(self, lane, i):
        """Time, what, argument, slot."""
        time, what, argument, check = struct.unpack_from('=4Q', self.data, self.at(lane, i))
        return time, what, argument, (check ^ time ^ what ^ argument) & 0xffffff

    @staticmethod
    def check(rest, i, slot):
        return (i << 24 | slot) ^ rest ^ (rest & 0xffffff) << 40

    def put(self, lane, i, event):
        time, what, argument, slot = event
        struct.pack_into('=4Q', self.data, self.at(lane, i), time, what, argument,
                         self.check(time ^ what ^ argument, i, slot))

    def drop(self, lane, i):
        last = self.count(lane) - 1
        for at in range(i, last):
            self.put(lane, at, self.get(lane, at + 1))
        struct.pack_into('=Q', self.data, PAGE + 64 * lane, last)

    def kind(self, lane, i):
        return self.get(lane, i)[1] >> 8 & 15

    def save(self, name):
        path = os.path.join(folder, name)
        with open(path, 'wb') as file:
            file.write(self.data)
        return path


def test_torture():
    for slots in '1', '4':
        path = record('torture', program, slots, os.environ.get('TORTURE_EVENTS', '20000'))
        print(show(path, '--check'), end='')
        events = json.loads(show(path))
        if not any(e['ph'] == 'X' and e['cat'] == 'task' for e in events):
            fail('no task ran')


def test_mutants():
    path = record('true', program, '2')
    show(path, '--check')
    dice = random.Random(7)
    for kind in (READY, RUN, SLEEP, END) * 3:
        file = File(path)
        where = [(lane, i) for lane in range(2, file.lanes) for i in range(file.count(lane) // 2)
                 if file.kind(lane, i) == kind]
        lane, i = dice.choice(where)
        event = file.get(lane, i)
        file.drop(lane, i)
        print(f'dropped from lane {lane}: event {i}, {event}', flush=True)
        show(file.save('dropped'), '--check', status=1)
    for _ in range(6):
        file = File(path)
        where = [(lane, i) for lane in range(2, file.lanes) for i in range(file.count(lane) // 2)
                 if file.kind(lane, i) == RUN]
        lane, i = dice.choice(where)
        task = file.get(lane, i)[1] >> 12
        after = next(at for at in range(i + 1, file.count(lane))
                     if file.get(lane, at)[1] >> 12 == task)
        one, other = file.get(lane, i), file.get(lane, after)
        file.put(lane, i, one[:1] + other[1:])
        file.put(lane, after, other[:1] + one[1:])
        show(file.save('swapped'), '--check', status=1)
    # What has been torn is missed, and does not make the rest a lie.
    file = File(path)
    for lane in range(2, file.lanes):
        for i in range(100, max(100, file.count(lane) // 2), 97):
            file.data[file.at(lane, i) + 17] ^= 255
    if ' 0 overwritten or torn' in show(file.save('torn'), '--check'):
        fail('torn events were not noticed')


def test_hostile():
    path = record('true', program, '2')
    size = os.path.getsize(path)
    with open(path, 'rb') as file:
        good = file.read()

    def bad(name, data, *places):
        at = os.path.join(folder, name)
        with open(at, 'wb') as file:
            file.write(data)
        for options in (('--check',), (), ('--html',)) if name == 'other' else (('--check',),):
            text = show(at, *options, status=2)
            if text.count('\n') != 1 or 'Traceback' in text or not any(p in text for p in places):
                fail(f'{name}: wanted a line with one of {places}, found {text}')

    def changed(code, at, value):
        data = bytearray(good)
        struct.pack_into(code, data, at, value)
        return bytes(data)

    bad('empty', b'', 'byte 0')
    bad('other', b'ELF' * 4096, 'byte 0')
    for length in 7, 95, 4096, 5000, size // 2, size - 1:
        bad('cut', good[:length], 'byte')
    bad('lanes', changed('=I', 8, 0xffffffff), 'byte 8')
    bad('none', changed('=I', 8, 0), 'byte 8')
    bad('places', changed('=I', 12, 1000), 'byte 12')
    bad('count', changed('=Q', PAGE, 1 << 63), f'byte {PAGE}')
    bad('clock', changed('=Q', 48, 0), 'byte 16')
    with open(os.path.join(folder, 'sparse'), 'wb') as file:
        file.write(changed('=I', 12, 1 << 29)[:PAGE])
        file.truncate(16 << 30)
        file.seek(PAGE)
        file.write(struct.pack('=Q', 1 << 35))
    show(os.path.join(folder, 'sparse'), '--check', status=2)
    fifo = os.path.join(folder, 'fifo')
    os.mkfifo(fifo)
    for path_ in fifo, folder, '/dev/zero', os.path.join(folder, 'nothing'):
        show(path_, '--check', status=2)
    # Any bytes: an end with 0, 1 or 2, in time, and no traceback.
    dice = random.Random(11)
    at = os.path.join(folder, 'random')
    for _ in range(8):
        data = bytearray(good)
        for _ in range(20):
            data[dice.randrange(dice.choice((120, 5000, size)))] = dice.randrange(256)
        with open(at, 'wb') as file:
            file.write(data)
        run = subprocess.run([tool, '--check', at], capture_output=True, text=True, timeout=120,
                             check=False)
        if run.returncode not in (0, 1, 2) or 'Traceback' in run.stderr:
            fail(f'random bytes: status {run.returncode}, {run.stderr[-600:]}')
    # No slot; and names that would change a terminal or end an element.
    file = File(path)
    for lane in range(file.lanes):
        struct.pack_into('=Q', file.data, PAGE + 64 * lane, 0)
    none = file.save('none')
    show(none, '--check')
    json.loads(show(none))
    page = show(record('names', program, '1', '</script>\x1b[2J'), '--html')
    if '\x1b' in page or '</script>\\' in page or '\\u003c/script>\\\\x1b' not in page:
        fail('a name is in the page as it is')


class Browser:
    """Chromium, by its pipe: messages that end in a 0."""

    def __init__(self, path):
        here, self.write = os.pipe()
        self.read, there = os.pipe()
        for fd in here, there:
            os.set_inheritable(fd, True)
        self.process = subprocess.Popen(
            ['sh', '-c', f'exec "$@" 3<&{here} 4>&{there}', 'sh', path, '--headless=new',
             '--no-sandbox', '--disable-gpu', '--remote-debugging-pipe', '--disable-dev-shm-usage',
             f'--user-data-dir={folder}/browser', '--window-size=1100,720', 'about:blank'],
            close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(here)
        os.close(there)
        self.number, self.rest, self.session = 0, b'', None

    def call(self, method, **params):
        self.number += 1
        message = {'id': self.number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        os.write(self.write, json.dumps(message).encode() + b'\0')
        while True:
            while b'\0' not in self.rest:
                part = os.read(self.read, 1 << 20)
                if not part:
                    fail('the browser has ended')
                self.rest += part
            text, self.rest = self.rest.split(b'\0', 1)
            answer = json.loads(text)
            if answer.get('id') == self.number:
                if 'error' in answer:
                    fail(f'{method}: {answer["error"]}')
                return answer['result']

    def value(self, script):
        result = self.call('Runtime.evaluate', expression=script, returnByValue=True,
                           awaitPromise=True)
        if 'exceptionDetails' in result:
            fail(f'{script}: {result["exceptionDetails"]}')
        return result['result'].get('value')

    def open(self, page):
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target,
                                 flatten=True)['sessionId']
        self.call('Page.enable')
        self.call('Page.navigate', url='file://' + page)
        # By the page's own clock, however slow the machine is.
        ready = 'document.body && document.body.dataset.ready'
        return int(self.value(f'''new Promise(done => {{ const look = () => {{
            if (location.protocol === 'file:' && {ready}) done({ready});
            else if (document.getElementById('say')?.textContent.startsWith('cannot')) done(-1);
            else setTimeout(look, 50); }}; look(); }})'''))


def test_page():
    chromium = shutil.which('chromium') or skip('no browser (Debian: chromium)')
    path = sys.argv[4] if len(sys.argv) > 4 else record('true', program, '2', 'baker')
    page = os.path.join(folder, 'page.html')
    show(path, '--html', '-o', page, limit=600)
    browser = Browser(chromium)
    try:
        took = browser.open(page)
        if took < 0:
            fail(browser.value("document.getElementById('say').textContent"))
        say = browser.value("document.getElementById('say').textContent")
        print(f'opened in {took} ms, {os.path.getsize(page)} bytes: {say}')
        before = browser.value('view.ns')
        for _ in range(3):
            browser.call('Input.dispatchMouseEvent', type='mouseWheel', x=600, y=75, deltaX=0,
                         deltaY=-100)
        if not browser.value('view.ns') < before:
            fail('the wheel does not zoom')
        if browser.value('document.querySelectorAll("#tables table").length') != 5:
            fail('wanted five tables')
        name = os.environ.get('TRACE_FIND', 'baker')
        browser.value(f"$('find').value = '{name}'; $('find').oninput()")
        if not browser.value("$('hits').querySelectorAll('a').length"):
            fail(f'{name} is not found')
        browser.value("$('hits').querySelector('a').click()")
        text = browser.value("$('run').textContent")
        if name not in text or not browser.value("$('life').querySelectorAll('tr').length > 2"):
            fail(f'wanted the life of {name}, found {text}')
        shot = os.environ.get('TRACE_SCREENSHOT')
        if shot:
            browser.value('zoom(500, 20)')
            data = browser.call('Page.captureScreenshot', format='png')['data']
            with open(shot, 'wb') as file:
                file.write(base64.b64decode(data))
    finally:
        browser.process.kill()
        browser.process.wait()


def count(kind, rounds, *options, of='libswitchto-sched', **env):
    """The instructions @of an object, but not of the monitor, whose time is not the rounds'."""
    out = os.path.join(folder, 'callgrind')
    run = subprocess.run(
        ['valgrind', '--tool=callgrind', '--separate-threads=yes', '--compress-strings=no',
         f'--callgrind-out-file={out}', *options, program, kind, str(rounds)], timeout=300, check=False,
        env=dict(os.environ, **env), stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode:
        fail(f'callgrind of {program} {kind}: status {run.returncode}: {run.stderr[-600:]}')
    total = 0
    for name in os.listdir(folder):
        if name.startswith('callgrind-'):
            path = os.path.join(folder, name)
            with open(path, encoding='utf-8') as file:
                text = file.read()
            os.unlink(path)
            if '\nfn=monitor' not in text:
                total += count_thread(text, of)
    return total


def count_thread(text, of):
    total, inside, call = 0, False, False
    for line in text.splitlines():
        if line.startswith('ob='):
            inside = of in line
        elif line.startswith('calls='):
            call = True
        elif re.match(r'[0-9+*-]\S* \d+$', line):
            total += int(line.split()[1]) if inside and not call else 0
            call = False
    return total


def test_costs():
    """At most 60 instructions an event, whatever the tasks do; and 300 to spawn a task."""
    if not shutil.which('valgrind'):
        skip('no valgrind')
    few, many = 2000, 6000
    for kind in 'yield', 'park', 'channel':
        without = count(kind, many) - count(kind, few)
        counts, events = [], []
        for rounds in few, many:
            path = os.path.join(folder, 'trace')
            counts.append(count(kind, rounds, SWITCHTO_TRACE=path))
            with open(path, 'rb') as file:
                lanes, = struct.unpack('=I', file.read(16)[8:12])
                file.seek(PAGE)
                events.append(sum(struct.unpack_from('=Q', file.read(64))[0]
                                  for _ in range(lanes)))
        each = (counts[1] - counts[0] - without) / (events[1] - events[0])
        print(f'{kind}: {without / (many - few):.1f} instructions a round, '
              f'{(counts[1] - counts[0]) / (many - few):.1f} with a trace of '
              f'{(events[1] - events[0]) / (many - few):.2f} events, {each:.1f} an event')
        if each > 60:
            fail(f'{kind}: wanted 60 instructions an event or less, found {each:.1f}')
    spawns = [count('spawn', rounds, '--toggle-collect=switchto_spawn', of='') for rounds in (few, many)]
    each = (spawns[1] - spawns[0]) / (2 * (many - few))
    print(f'spawn: {each:.1f} instructions, with those of the C library')
    if each > 300:
        fail(f'spawn: wanted 300 instructions or less, found {each:.1f}')


if not os.path.isdir('/dev/shm'):
    skip('no /dev/shm')
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
try:
    globals()['test_' + mode]()
finally:
    shutil.rmtree(folder, ignore_errors=True)
