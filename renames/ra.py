#!/usr/bin/env python3
"""ra.py ROOT LIST: renames by rust-analyzer. Each line of LIST: FILE | REGEX with the name as its last group | NEW.
A line starting with # is skipped. FILE may have been moved by an earlier rename: give the current path."""
import json, os, re, subprocess, sys, threading, time, queue, urllib.parse
root = os.path.abspath(sys.argv[1])
lines = [l.rstrip('\n') for l in open(sys.argv[2])]
p = subprocess.Popen(['rust-analyzer'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=root)
answers, progress, state = {}, {}, {'quiescent': False}
lock = threading.Condition()
def send(m):
    b = json.dumps(m).encode()
    p.stdin.write(b'Content-Length: %d\r\n\r\n' % len(b) + b); p.stdin.flush()
def reader():
    while True:
        n = 0
        while True:
            h = p.stdout.readline()
            if not h: return
            h = h.strip()
            if not h: break
            if h.lower().startswith(b'content-length:'): n = int(h.split(b':')[1])
        m = json.loads(p.stdout.read(n))
        with lock:
            if 'id' in m and 'method' in m:
                if m['method'] == 'workspace/configuration':
                    send({'jsonrpc':'2.0','id':m['id'],'result':[settings for _ in m['params']['items']]})
                else: send({'jsonrpc':'2.0','id':m['id'],'result':None})
            elif 'id' in m: answers[m['id']] = m
            elif m['method'] == 'experimental/serverStatus':
                state['quiescent'] = m['params']['quiescent']
                if m['params'].get('message'): print('status:', m['params']['message'][:300], file=sys.stderr)
            lock.notify_all()
settings = {'checkOnSave': False, 'cachePriming': {'enable': True, 'numThreads': 2}, 'cargo': {'buildScripts': {'enable': True}, 'allTargets': True, 'targetDir': 'target/rust-analyzer', 'features': 'all'}, 'procMacro': {'enable': True}, 'numThreads': 2, 'files': {'watcher': 'client'}}
threading.Thread(target=reader, daemon=True).start()
ids = iter(range(1, 10**9))
def request(method, params, timeout=900):
    i = next(ids); send({'jsonrpc':'2.0','id':i,'method':method,'params':params})
    end = time.time() + timeout
    with lock:
        while i not in answers:
            if not lock.wait(end - time.time()): raise TimeoutError(method)
        return answers.pop(i)
def uri(path): return 'file://' + urllib.parse.quote(path)
def unuri(u): return urllib.parse.unquote(u[len('file://'):])
request('initialize', {'processId': os.getpid(), 'rootUri': uri(root), 'workspaceFolders':[{'uri':uri(root),'name':'w'}], 'initializationOptions': settings,
  'capabilities': {'general': {'positionEncodings': ['utf-8']}, 'experimental': {'serverStatusNotification': True},
    'workspace': {'workspaceEdit': {'documentChanges': True, 'resourceOperations': ['rename','create','delete']}, 'didChangeWatchedFiles': {'dynamicRegistration': True}, 'configuration': True},
    'textDocument': {'rename': {'prepareSupport': False}}}})
send({'jsonrpc':'2.0','method':'initialized','params':{}})
def settle():
    time.sleep(0.3)
    with lock:
        while not state['quiescent']: lock.wait(5)
t0=time.time()
with lock:
    while not state['quiescent']: lock.wait(5)
print('ready after %.0f s' % (time.time()-t0), flush=True)
def apply(edit):
    changed = []
    for c in edit.get('documentChanges') or [{'textDocument':{'uri':u},'edits':e} for u,e in edit.get('changes',{}).items()]:
        if 'kind' in c:
            assert c['kind'] == 'rename', c
            a, b = unuri(c['oldUri']), unuri(c['newUri'])
            os.makedirs(os.path.dirname(b), exist_ok=True); 
            if subprocess.run(['git','-C',root,'mv',a,b]).returncode: os.rename(a,b)
            if os.path.isdir(b):
                for d,_,fs in os.walk(b):
                    for f in fs:
                        n=os.path.join(d,f); o=a+n[len(b):]
                        changed += [(o,3),(n,1)]
            else: changed += [(a,3),(b,1)]
            continue
        path = unuri(c['textDocument']['uri'])
        rows = open(path,'rb').read().split(b'\n')
        for e in sorted(c['edits'], key=lambda e:(e['range']['start']['line'],e['range']['start']['character']), reverse=True):
            s, t = e['range']['start'], e['range']['end']
            head = rows[s['line']][:s['character']]; tail = rows[t['line']][t['character']:]
            rows[s['line']:t['line']+1] = (head + e['newText'].encode() + tail).split(b'\n')
        open(path,'wb').write(b'\n'.join(rows)); changed.append((path,2))
    send({'jsonrpc':'2.0','method':'workspace/didChangeWatchedFiles','params':{'changes':[{'uri':uri(a),'type':k} for a,k in changed]}})
    return len(changed)
failed = 0
for l in lines:
    if not l.strip() or l.startswith('#'): continue
    f, pattern, new = [x.strip() for x in l.split('|')] if l.count('|') == 2 else [x.strip() for x in re.split(r' \| ', l)]
    path = os.path.join(root, f)
    try: text = open(path).read()
    except OSError as e: print('FAIL', l, e); failed += 1; continue
    m = re.search(pattern, text, re.M)
    if not m: print('FAIL no match:', l, flush=True); failed += 1; continue
    g = m.lastindex or 0
    at = m.start(g)
    line = text.count('\n', 0, at); col = len(text[text.rfind('\n',0,at)+1:at].encode())
    if m.group(g) == new: continue
    for attempt in range(4):
        r = request('textDocument/rename', {'textDocument':{'uri':uri(path)},'position':{'line':line,'character':col},'newName':new})
        if r.get('error',{}).get('code') == -32801: time.sleep(0.5); continue
        break
    if 'error' in r or not r.get('result'): print('FAIL', l, '->', r.get('error',{}).get('message', r)); failed += 1; continue
    n = apply(r['result']); print('%-28s -> %-24s %d files' % (m.group(g), new, n), flush=True)
    settle()
print('failed:', failed)
send({'jsonrpc':'2.0','id':next(ids),'method':'shutdown','params':None}); time.sleep(0.3); p.kill()
